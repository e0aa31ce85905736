"""`st-train --prepare I/N`: shares of what a run computes before it trains."""

import pytest
import yaml
from conftest import make_sentences, save_encoder, save_translator
from processes import run_two
from test_run import project, train, weights  # noqa: F401  # project is a fixture

from st_jtcse.recipe.yaml_source import dump

DISTIL = {"type": "EmbedDistillLoss", "distance_metric": "cosine"}
TAUGHT = {
    "name": "taught",
    "model": {"base": "./a", "pooling": "cls"},
    "teachers": [{"model": "./b", "pooling": "mean"}],
    "neighbours": {"count": 3, "weight": 0.4, "anchors": "general.txt"},
    "loss": DISTIL,
}
MAPPED = {
    "name": "mapped",
    "model": {"base": "./b", "pooling": "mean"},
    "loss": None,
    "maps": {
        "ways": [["centred"], [{"towards": {"teachers": [{"model": "./a", "pooling": "cls"}]}}]],
        "normalize": True,
    },
}
CHOSEN = {
    "name": "chosen",
    "model": {"base": "./b", "pooling": "mean"},
    "loss": None,
    "candidates": ["./a-model", "stage:mapped"],
}
STUDENT = {
    "name": "student",
    "model": {"base": "stage:taught"},
    "teachers": [{"model": "stage:mapped"}],
    "evaluate": {},
    "args": {"eval_strategy": "no"},
    "loss": DISTIL,
}
UNLABELLED = {"dev": "unlabelled", "test": {"test": "test.jsonl"}}
WAITS = "which is trained first; its vectors are computed by the run"


def write(folder, *stages, **keys):
    recipe = yaml.safe_load((folder / "recipe.yaml").read_text())
    recipe |= {"stages": list(stages), **keys}
    recipe["args"] |= {"max_steps": 2, "eval_steps": 2}
    (folder / "recipe.yaml").write_text(dump(recipe))


@pytest.fixture
def work(project, unrehearsed, monkeypatch):  # noqa: F811
    """A project whose shards hold 16 sentences, and a recipe with all that is kept in the cache."""
    monkeypatch.chdir(project)
    monkeypatch.setattr("st_jtcse.data.encoded.SHARD", 16)
    texts = list(dict.fromkeys(make_sentences(220)))[:160]
    (project / "text.txt").write_text("\n".join(texts) + "\n")
    (project / "general.txt").write_text("\n".join(make_sentences(40, seed=9)) + "\n")
    write(project, TAUGHT, MAPPED, STUDENT, evaluate=UNLABELLED)
    return project


def prepare(folder, share, *options):
    return train(folder, "--prepare", share, *options)


def in_cache(folder, name="cache"):
    """The files of the cache with their times, but for those that datasets copies rows into."""
    files = (path for path in (folder / name).rglob("*") if path.is_file())
    return {path: path.stat().st_mtime_ns for path in files if not path.match("cache-*.arrow")}


@pytest.mark.parametrize("order", [(1, 2), (3, 1, 2)])
def test_the_run_computes_nothing_again_and_gives_the_same_bytes(work, capsys, order):
    for number in order:
        assert prepare(work, f"{number}/{len(order)}") == 0
    told = capsys.readouterr().out
    assert "teacher: all 144 sentences are there" in told
    assert "teacher: all 16 sentences are there" in told
    assert "vectors: all 144 sentences are there" in told
    assert f"stage student needs stage:mapped, {WAITS}" in told
    assert "All shares are there: repeat the command without --prepare." in told
    assert not (work / "run").exists()
    before = in_cache(work)
    assert len(before) == 6 and {path.suffix for path in before} == {".arrow"}
    assert train(work) == 0
    # Of the run's own the vectors of the stage that had to be trained first.
    computing = [line for line in capsys.readouterr().err.splitlines() if ": computing " in line]
    assert len(computing) == 1 and computing[0].startswith("teacher: computing 160 of 160")
    after = in_cache(work)
    assert len(after) == 7 and after.items() >= before.items()
    plain = ["--output-dir", "plain", "--set", "cache_dir=plain-cache"]
    assert train(work, *plain) == 0
    assert weights(work) == weights(work, "plain")
    assert {path.name: path.read_bytes() for path in after} == {
        path.name: path.read_bytes() for path in in_cache(work, "plain-cache")
    }


def test_a_share_says_what_is_left_and_can_be_repeated(work, capsys):
    assert prepare(work, "2/3") == 0
    told = capsys.readouterr().out
    assert f"Share 2 of 3 is in {work / 'cache'}:" in told
    # Shards 2, 5 and 8 of nine.
    assert "teacher: 96 of 144 sentences are left to other shares" in told
    assert "teacher: 16 of 16 sentences are left to other shares" in told
    assert "When all shares are there, repeat the command without --prepare." in told
    before = in_cache(work)
    assert prepare(work, "2/3") == 0
    again = capsys.readouterr()
    assert again.out == told and ": computing " not in again.err and in_cache(work) == before


def test_a_finished_stage_is_a_teacher_like_others(work, capsys):
    assert train(work, "--stage", "taught", "--stage", "mapped") == 0
    capsys.readouterr()
    assert prepare(work, "1/1") == 0
    told = capsys.readouterr()
    assert "teacher: all 160 sentences are there" in told.out and WAITS not in told.out
    before = in_cache(work)
    assert train(work, "--resume") == 0
    assert in_cache(work) == before and ": computing " not in capsys.readouterr().err


def test_candidates_that_are_there_are_encoded_and_the_others_wait(work, capsys):
    from st_jtcse.modules import load_sentence_transformer

    load_sentence_transformer(work / "a", pooling="cls").save_pretrained(str(work / "a-model"))
    write(work, MAPPED, CHOSEN)
    assert prepare(work, "1/1", "--stage", "chosen") == 0
    told = capsys.readouterr().out
    # A sample of the text and the held-out sentences by the start, and those by a candidate.
    assert told.count("vectors: all 16 sentences are there") == 2
    assert told.count("vectors: all 144 sentences are there") == 1
    assert f"stage chosen needs stage:mapped, {WAITS}" in told
    before = in_cache(work)
    assert train(work) == 0
    assert in_cache(work).items() >= before.items()


def test_the_vectors_of_a_reference_are_computed_in_shares(work, capsys):
    from st_jtcse.modules import load_sentence_transformer

    load_sentence_transformer(work / "a", pooling="cls").save_pretrained(str(work / "a-model"))
    found = {"models": ["./a-model"], "reference": [{"model": "./a-model", "normalize": True}]}
    write(work, MAPPED, CHOSEN | {"candidates": found})
    assert prepare(work, "1/2", "--stage", "chosen") == 0
    told = capsys.readouterr().out
    # The held-out sentences, which are one shard, do not wait for the text's other shards.
    assert "of 144 sentences are left to other shares" in told
    assert "teacher: all 16 sentences are there" in told
    assert prepare(work, "2/2", "--stage", "chosen") == 0
    assert "All shares are there" in capsys.readouterr().out
    before = in_cache(work)
    assert train(work, "--stage", "chosen") == 0
    assert in_cache(work) == before


def test_what_is_made_of_round_trips_waits_for_all_of_them(work, capsys):
    save_translator(work / "mt", 0)
    save_translator(work / "nt", 6)
    pivots = [{"name": name, "forward": f"./{name}", "back": f"./{name}"} for name in ("mt", "nt")]
    write(
        work,
        TAUGHT | {"augment": {"pivots": pivots, "max_length": 12}, "neighbours": None},
        evaluate={"dev": "dev.jsonl"},
    )
    waits = "stage taught makes its rows of these files; what needs the rows is computed by the run"
    assert prepare(work, "2/2") == 0
    told = capsys.readouterr().out
    assert told.count("translation: 160 of 160 sentences are left") == 2 and waits in told
    assert prepare(work, "1/2") == 0
    told = capsys.readouterr().out
    assert told.count("translation: all 160 sentences are there") == 2 and waits not in told
    assert "teacher: " in told and "are left to other shares" in told
    assert prepare(work, "2/2") == 0
    assert "All shares are there" in capsys.readouterr().out
    before = in_cache(work)
    assert train(work) == 0
    assert in_cache(work) == before and ": computing " not in capsys.readouterr().err


def test_two_processes_compute_a_share_and_two_train_by_it(work):
    write(work, TAUGHT, evaluate=UNLABELLED)
    run_two(prepare, work, "1/1", folder=work)
    said = [(work / f"said-by-{rank}.txt").read_text() for rank in range(2)]
    assert "teacher: all 144 sentences are there" in said[0] and "Share" not in said[1]
    before = in_cache(work)
    assert len(before) == 3 and not (work / "run").exists()
    run_two(train, work, folder=work)
    assert in_cache(work) == before and weights(work).keys() == {"taught"}


def test_every_seed_of_a_sweep_is_prepared_at_once(work, capsys):
    write(work, TAUGHT, evaluate=UNLABELLED, seeds=[1, 2])
    assert prepare(work, "1/1") == 0
    assert capsys.readouterr().err.count(": computing ") == 3
    assert train(work) == 0
    assert ": computing " not in capsys.readouterr().err


def test_a_recipe_that_keeps_nothing_says_so(project, capsys):  # noqa: F811
    assert prepare(project, "1/2", "--stage", "encoder") == 0
    assert "Nothing to prepare" in capsys.readouterr().out
    assert not (project / "cache").exists() and not (project / "run").exists()


@pytest.mark.parametrize("share", ["0/3", "4/3", "x", "1/0", "1", "1/3/3", "-1/3", "1.0/3"])
def test_what_is_no_share_is_refused(project, capsys, share):  # noqa: F811
    with pytest.raises(SystemExit, match=r"^2$"):
        train(project, f"--prepare={share}")
    told = f"argument --prepare: expected I/N with I from 1 to N, such as 3/8, found {share!r}\n"
    assert capsys.readouterr().err.endswith(told)


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (["--resume"], "--prepare computes a share and trains nothing, found --resume beside it"),
        (["--dry-run"], "found --dry-run beside it; leave one out."),
        (["--push"], "found --push beside it; leave one out."),
        (
            ["--set", "cache_dir=null"],
            "--prepare: expected the recipe to name a 'cache_dir', which all shares and the run "
            "see, found none; add --set cache_dir=FOLDER.",
        ),
        (["--set", "cache_dir=run/cache"], "lies in the output folder, which has to be empty"),
    ],
)
def test_what_does_not_go_with_it_is_refused(project, capsys, monkeypatch, options, told):  # noqa: F811
    monkeypatch.chdir(project)
    assert prepare(project, "1/2", *options) == 2
    err = capsys.readouterr().err
    assert told in err and err.count("\n") == 1
    assert not (project / "cache").exists() and not (project / "run").exists()


def test_what_could_not_train_is_refused_before_anything_is_computed(project, capsys, monkeypatch):  # noqa: F811
    monkeypatch.chdir(project)
    save_encoder(project / "wide", 3, hidden_size=48)
    taught = TAUGHT | {"neighbours": None, "teachers": [{"model": "./wide", "pooling": "mean"}]}
    write(project, taught)
    assert prepare(project, "1/2") == 2
    assert "the teachers' embeddings have 48 components" in capsys.readouterr().err
    assert not (project / "cache").exists()
