"""`dev: unlabelled` in a recipe: held-out sentences, the teachers' neighbourhoods, and the bundled
`adapt`.
"""

import json
from pathlib import Path

import numpy as np
import pytest
from conftest import make_sentences, save_encoder
from datasets import Dataset
from sentence_transformers import SentenceTransformer
from test_run import project, refusal, results, train  # noqa: F401  # project is a fixture

from st_jtcse.cli.train import main
from st_jtcse.data import Source, hold_out, load_sentences, sentences_sha256
from st_jtcse.training.checkpoints import Checkpoints

DISTILLED = ["--stage", "encoder", "--set", "evaluate={dev: unlabelled, test: {test: test.jsonl}}"]
TEACHER = "{model: ./b, pooling: mean}"


@pytest.fixture
def enough(project, monkeypatch):  # noqa: F811
    """The project with sentences enough to hold some out."""
    monkeypatch.chdir(project)
    for seed, name in ((1, "a"), (2, "b")):
        save_encoder(project / name, seed)
    texts = list(dict.fromkeys(make_sentences(220)))[:160]
    (project / "text.txt").write_text("\n".join(texts) + "\n")
    return project


@pytest.mark.usefixtures("unrehearsed")
def test_held_out_sentences_choose_and_are_not_trained_on(enough):
    loss = "{type: EmbedDistillLoss, distance_metric: cosine}"
    own = ["--set", f"stages.encoder.teachers=[{TEACHER}]", "--set", f"stages.encoder.loss={loss}"]
    kept, held = hold_out(load_sentences([Source(enough / "text.txt")]))
    (enough / "general.txt").write_text(
        "\n".join([*held.dataset["sentence"], "general words"]) + "\n"
    )
    own += [
        "--set",
        "stages.encoder.neighbours={count: 3, weight: 0.4, anchors: general.txt, anchor_share: "
        "0.1}",
    ]
    own += [
        "--set",
        "args.max_steps=40",
        "--set",
        "args.eval_steps=20",
        "--set",
        "args.learning_rate=3e-3",
    ]
    assert train(enough, *DISTILLED, *own) == 0
    found = results(enough)["stages"][0]
    assert found["sentences"] == len(kept.dataset) + 16 == 144 + 16
    assert found["data_sha256"]["anchors"] == sentences_sha256(
        Dataset.from_dict({"sentence": ["general words"]})
    )
    assert (found["data_sha256"]["train"], found["data_sha256"]["dev"]) == (
        kept.sha256,
        held.sha256,
    )
    assert found["metrics"]["dev"] == "shared_neighbours"
    # The teacher's neighbourhoods are learned, so the start does not stay the best.
    assert found["spearman"]["dev"] == pytest.approx(found["best_dev"], abs=1e-3)
    assert found["best_dev"] > found["spearman_start"]["dev"]


@pytest.mark.usefixtures("unrehearsed")
def test_they_choose_by_default_where_a_stage_evaluates_and_nothing_is_given(enough):
    changes = [
        "stages.encoder.loss.type=EmbedDistillLoss",
        f"stages.encoder.teachers=[{TEACHER}]",
        "args.max_steps=2",
    ]
    own = ["--stage", "encoder", *(part for change in changes for part in ("--set", change))]
    found = []
    for folder, evaluate in (("said", "{dev: unlabelled}"), ("unsaid", "{}")):
        assert (
            train(enough, *own, "--set", f"evaluate={evaluate}", "--set", f"output_dir={folder}")
            == 0
        )
        found += json.loads((enough / folder / "results.json").read_text())["stages"]
    first, second = found
    assert (
        first["data_sha256"].keys() >= {"train", "dev"}
        and first["data_sha256"] == second["data_sha256"]
    )
    assert first["spearman"] == second["spearman"] and first["metrics"] == {
        "dev": "shared_neighbours"
    }


def test_without_teachers_and_topics_nothing_could_beat_the_start(enough, capsys):
    assert train(enough, *DISTILLED, "--set", "args.max_steps=2") == 2
    assert (
        "the stage has no teachers and its text no topics, so the start would always be"
        in capsys.readouterr().err
    )


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ([], "and 'dev: unlabelled' needs 100; add"),
        (["--set", "args.per_device_train_batch_size=90"], "and 'dev: unlabelled' needs 100; add"),
        (
            ["--set", "evaluate.dev={unlabelled: true, limit: 3}"],
            "expected no 'limit' beside 'unlabelled'",
        ),
    ],
)
def test_what_cannot_choose_is_refused(project, capsys, monkeypatch, options, told):  # noqa: F811
    monkeypatch.chdir(project)
    assert told in refusal(project, capsys, *DISTILLED, *options)


@pytest.mark.parametrize("options", [[], ["--dry-run"]])
def test_text_that_the_model_cannot_read_is_refused_before_anything_is_written(
    enough, capsys, options
):
    (enough / "text.txt").write_text(
        "\n".join(f"слово номер {number} the" for number in range(160)) + "\n"
    )
    told = refusal(enough, capsys, *DISTILLED, *options)
    assert "Stage 'encoder': the model's tokenizer does not know 75 % of the text's tokens" in told
    assert not (enough / "run").exists()


def test_words_that_the_model_does_not_know_are_remarked(enough, capsys):
    texts = [
        f"слово {text}" if number % 2 else text for number, text in enumerate(make_sentences(160))
    ]
    (enough / "text.txt").write_text("\n".join(texts) + "\n")
    words = sum(len(text.split()) for text in texts)
    told = (
        f"encoder: the model's tokenizer does not know {100 * 80 / words:.0f} % of the text's "
        "tokens"
    )
    assert train(enough, *DISTILLED, "--dry-run") == 0
    assert told in capsys.readouterr().err


@pytest.fixture(scope="module")
def adapted(tmp_path_factory):
    """A model, and sentences of its words."""
    folder = tmp_path_factory.mktemp("adapt")
    SentenceTransformer(str(save_encoder(folder / "plain", 3))).save_pretrained(
        str(folder / "model")
    )
    texts = list(dict.fromkeys(make_sentences(220)))[:160]
    (folder / "my.txt").write_text("\n".join(texts) + "\n")
    return folder


def undisturbed(folder):
    """What a few steps of `adapt` give, once for all tests."""
    if not (folder / "out").exists():
        assert adapt(folder, "out") == 0
    return json.loads((folder / "out" / "results.json").read_text())


def adapt(folder, out, *options):
    own = {
        "effort": "full",
        "stages.adapted.candidates.form": "same",
        "data.train": folder / "my.txt",
        "model": folder / "model",
        "args.max_steps": 3,
    }
    own |= {"args.save_strategy": "steps", "args.save_steps": 2, "args.use_cpu": "true"}
    own |= {
        "stages.distilled_copies.args.max_steps": 3,
        "stages.distilled_copies.args.eval_steps": 1,
    }
    own |= {"cache_dir": folder / "cache", "stages.distilled_copies.args.save_steps": 1}
    changes = [part for key, value in own.items() for part in ("--set", f"{key}={value}")]
    return main(["adapt", *changes, "--output-dir", str(folder / out), *options])


def test_adapt_ends_with_a_plain_model_of_the_same_modules(adapted):
    found = undisturbed(adapted)
    assert [stage["name"] for stage in found["stages"]] == [
        "start",
        "mapped",
        "ranked_cls",
        "ranked_first_last",
        "distilled_copies",
        "adapted",
    ]
    assert [verdict["set"] for verdict in found["verdicts"]] == ["everyday_test"]
    base = SentenceTransformer(str(adapted / "model"))
    model = SentenceTransformer(str(adapted / "out" / "adapted"))
    assert [type(module) for module in model] == [type(module) for module in base]
    assert model[1].pooling_mode == base[1].pooling_mode
    start = SentenceTransformer(str(adapted / "out" / "start"))
    texts = make_sentences(4)
    assert np.array_equal(start.encode(texts), base.encode(texts))


@pytest.mark.usefixtures("unrehearsed")
def test_adapt_that_was_interrupted_resumes_to_the_same_bytes(adapted, capsys):
    straight, save = undisturbed(adapted)["stages"], Checkpoints.on_save

    def interrupt(at):
        def save_and_interrupt(self, args, state, *rest, **more):
            save(self, args, state, *rest, **more)
            if (Path(args.output_dir).name, state.global_step) == at:
                raise KeyboardInterrupt

        return save_and_interrupt

    for at in (("ranked_cls", 2), ("distilled_copies", 1)):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Checkpoints, "on_save", interrupt(at))
            resume = ["--resume"] if at[0] == "distilled_copies" else []
            assert adapt(adapted, "cut", *resume) == 130
        assert (adapted / "cut" / at[0] / f"checkpoint-{at[1]}").is_dir()
    assert adapt(adapted, "cut", "--resume") == 0
    resumed = json.loads((adapted / "cut" / "results.json").read_text())["stages"]
    for one, other in zip(straight, resumed, strict=True):
        for key in ("weights_sha256", "settings_sha256", "spearman", "steps", "data_sha256"):
            assert one[key] == other[key]
    # A finished run has nothing to do.
    before = {path: path.stat().st_mtime_ns for path in (adapted / "cut").glob("*/*")}
    assert adapt(adapted, "cut", "--resume") == 0
    assert {path: path.stat().st_mtime_ns for path in (adapted / "cut").glob("*/*")} == before
    assert "nothing to resume" not in capsys.readouterr().err
