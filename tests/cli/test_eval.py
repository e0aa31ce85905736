"""st-eval end to end: files and exit codes, resuming, another model's folder, missing data, faults
in one sentence.
"""

import io
import json
import re
import shutil

import pytest
import torch
from conftest import make_model, make_pairs, write_rows
from processes import run_code
from rich.console import Console

from st_jtcse.cli import console
from st_jtcse.cli import eval as command
from st_jtcse.evaluation.mteb_models import UniqueTextEncoder
from st_jtcse.ownership import LIST

pytestmark = pytest.mark.usefixtures("offline")

SETS = ("STS12", "STSB", "TREC", "MRPC")
FIGURES = [word for name in SETS for word in ("--task", f"senteval/{name}")]


def run(capsys, *arguments):
    code = command.main([str(argument) for argument in arguments])
    return code, capsys.readouterr()


def results(folder):
    return json.loads((folder / "results.json").read_text())


def test_a_run_leaves_figures_beside_the_papers(model_folders, evaluation_data, tmp_path, capsys):
    output = tmp_path / "out"
    code, told = run(
        capsys,
        model_folders[0],
        "--suite",
        "sts7",
        *FIGURES,
        "--data",
        evaluation_data,
        "--output-dir",
        output,
    )
    found = results(output)
    assert code == 3
    assert (
        "4 of 11 tasks have no result: mteb/STS13, mteb/STS14, mteb/STS15, mteb/STS16." in told.err
    )
    rows = {row["label"]: row for row in found["suites"]["sts7"]["rows"]}
    reported = {"SimCSE": 68.4, "TNCSE": 75.52, "JTCSE": 74.95, "JTCSE-D": 75.01}
    assert rows["STS12"]["reported"].items() > reported.items()
    tasks = {row["label"]: row["score"] for row in found["suites"]["tasks"]["rows"]}
    # Two codes, one protocol: MTEB's and SentEval's.
    assert rows["STS12"]["score"] == pytest.approx(tasks["senteval/STS12"], abs=1e-3)
    assert rows["STSB"]["score"] == pytest.approx(tasks["senteval/STSB"], abs=1e-3)
    assert rows["STS13"]["score"] is None
    assert found["suites"]["sts7"]["average"] is None
    assert set(found["missing"]) == {f"mteb/STS{year}" for year in (13, 14, 15, 16)}
    assert found["tasks"]["mteb/SICK-R with the pairs of SICKR"]["source"].endswith(
        "sickr.test.jsonl"
    )
    text = (output / "results.md").read_text()
    assert (
        f"| STS12 | cosine_spearman | {rows['STS12']['score']:.2f} | 68.40 | 75.52 | 74.95 | 75.01 "
        "| 75.44 |" in text
    )
    assert "| mean |  | - | 76.25 | 79.58 | 79.70 | 79.89 | 80.60 |" in text
    mrpc = found["tasks"]["senteval/MRPC"]["scores"]["test"]["default"]
    line = " | ".join(f"{100 * mrpc[name]:.2f}" for name in ("accuracy", "dev_accuracy", "f1"))
    assert f"| senteval/MRPC | {line} |" in text
    assert "- mteb/STS13: its data, mteb/sts13-sts@" in text
    drawn = [f"{suite}.{kind}" for suite in ("sts7", "tasks") for kind in ("png", "svg")]
    assert sorted(path.name for path in output.iterdir()) == [
        LIST,
        "index.html",
        "results.json",
        "results.md",
        *drawn,
    ]
    page = (output / "index.html").read_text()
    assert "://" not in page and page.count("<table") == 2
    assert "sts7: this model&#39;s scores among the reported ones." in page


def test_finished_tasks_are_not_run_again(
    model_folders, evaluation_data, tmp_path, capsys, monkeypatch
):
    common = model_folders[0], "--data", evaluation_data, "--output-dir", tmp_path
    assert run(capsys, *common, "--task", "STS12")[0] == 0
    first = results(tmp_path)["tasks"]["mteb/STS12"]
    ran, encode = set(), UniqueTextEncoder.encode

    def seen(encoder, inputs, *, task_metadata, **options):
        ran.add(task_metadata.name)
        return encode(encoder, inputs, task_metadata=task_metadata, **options)

    monkeypatch.setattr(UniqueTextEncoder, "encode", seen)
    assert run(capsys, *common, "--task", "STS12", "--task", "STSBenchmark")[0] == 0
    assert ran == {"STSBenchmark"}
    assert results(tmp_path)["tasks"]["mteb/STS12"] == first
    assert len(results(tmp_path)["suites"]["tasks"]["rows"]) == 2


def test_the_task_that_runs_is_shown_with_its_place_among_them(
    model_folders, evaluation_data, capsys, monkeypatch
):
    tasks = ["[1/2] senteval/STSB", "[2/2] senteval/STS12"]
    asked = (
        model_folders[0],
        "--data",
        evaluation_data,
        "--task",
        "senteval/STSB",
        "--task",
        "senteval/STS12",
    )
    code, told = run(capsys, *asked)
    lines = [re.sub(r"\d+ s$", "N s", line) for line in told.err.splitlines()]
    assert code == 0 and lines == [
        f"{task}: {what}" for task in tasks for what in ("begun", "done in N s")
    ]
    shown = io.StringIO()
    monkeypatch.setattr(
        console, "err", Console(file=shown, force_terminal=True, width=80, soft_wrap=True)
    )
    assert run(capsys, *asked)[0] == 0
    plain = re.sub(r"\x1b\[[\d;?]*[A-Za-z]", "", shown.getvalue())
    assert all(
        re.search(rf"{re.escape(task)} .*0:00:0\d", plain) and f"{task}: done in" in plain
        for task in tasks
    )
    assert "begun" not in plain and shown.getvalue().rfind("\x1b[?25l") < shown.getvalue().rfind(
        "\x1b[?25h"
    )


def test_other_data_are_evaluated_again(model_folders, tmp_path, capsys):
    scores = []
    for seed in (1, 2):
        data = tmp_path / f"data_{seed}"
        write_rows(data / "sts" / "stsb.test.jsonl", make_pairs(20, seed))
        arguments = "--task", "senteval/STSB", "--data", data, "--output-dir", tmp_path / "out"
        assert run(capsys, model_folders[0], *arguments)[0] == 0
        scores.append(results(tmp_path / "out")["suites"]["tasks"]["rows"][0]["score"])
    assert scores[0] != scores[1]


def test_an_interrupt_keeps_finished_tasks(
    model_folders, evaluation_data, tmp_path, capsys, monkeypatch
):
    def interrupt(encoder, inputs, **options):
        raise KeyboardInterrupt

    common = model_folders[0], "--data", evaluation_data, "--output-dir", tmp_path
    both = "--task", "senteval/STSB", "--task", "STS12"
    with monkeypatch.context() as patch:
        patch.setattr(UniqueTextEncoder, "encode", interrupt)
        code, told = run(capsys, *common, *both)
    assert code == 130
    assert "to go on after the finished tasks, repeat the command" in told.err
    assert list(results(tmp_path)["tasks"]) == ["senteval/STSB"]
    assert run(capsys, *common, *both)[0] == 0
    assert list(results(tmp_path)["tasks"]) == ["senteval/STSB", "mteb/STS12"]


def test_another_model_s_folder_is_refused_and_kept(
    model_folders, evaluation_data, tmp_path, capsys
):
    common = "--task", "senteval/STSB", "--data", evaluation_data, "--output-dir", tmp_path
    assert run(capsys, model_folders[0], *common)[0] == 0
    before = (tmp_path / "results.json").read_bytes()
    code, told = run(capsys, model_folders[1], *common)
    assert code == 2
    assert "holds the results of another model" in told.err
    assert (tmp_path / "results.json").read_bytes() == before


def test_results_of_something_else_are_refused(model_folders, evaluation_data, tmp_path, capsys):
    (tmp_path / "results.json").write_text('{"stages": []}')
    code, told = run(
        capsys,
        model_folders[0],
        "--task",
        "senteval/STSB",
        "--data",
        evaluation_data,
        "--output-dir",
        tmp_path,
    )
    assert code == 2
    assert told.err == f"--output-dir: {tmp_path} is not empty; choose another folder.\n"


def test_an_output_that_cannot_be_a_folder_is_refused(
    model_folders, evaluation_data, tmp_path, capsys
):
    (tmp_path / "file").touch()
    for output in (tmp_path / "file", tmp_path / "file" / "below"):
        code, told = run(
            capsys,
            model_folders[0],
            "--task",
            "senteval/STSB",
            "--data",
            evaluation_data,
            "--output-dir",
            output,
        )
        assert code == 2
        assert told.err in (
            f"--output-dir: {output} is not a folder; choose another folder.\n",
            f"--output-dir: The output {output} lies below {output.parent}, which is a file; "
            "choose another place.\n",
        )
        assert len(told.err.splitlines()) == 1


def test_a_model_that_gives_nan_is_refused(tower_folders, evaluation_data, tmp_path, capsys):
    model = make_model(tower_folders[0])
    with torch.no_grad():
        model[0].model.encoder.layer[0].output.dense.bias[0] = float("nan")
    model.save_pretrained(str(tmp_path / "nan"), create_model_card=False)
    for task in ("senteval/STSB", "senteval/TREC", "STS12"):
        code, told = run(capsys, tmp_path / "nan", "--task", task, "--data", evaluation_data)
        assert code == 2
        assert "dense.bias' in" in told.err and "is not finite" in told.err


def test_a_pooling_of_another_size_is_refused(model_folders, evaluation_data, tmp_path, capsys):
    folder = shutil.copytree(model_folders[0], tmp_path / "wrong")
    config = json.loads((folder / "1_Pooling" / "config.json").read_text())
    (folder / "1_Pooling" / "config.json").write_text(
        json.dumps(config | {"embedding_dimension": 48})
    )
    code, told = run(capsys, folder, "--task", "senteval/STSB", "--data", evaluation_data)
    assert code == 2
    assert "is for embeddings of size 48, and its encoder's have 32" in told.err


def make_constant(model):
    """Have a model give all texts one embedding."""
    with torch.no_grad():
        norm = model[0].model.encoder.layer[-1].output.LayerNorm
        norm.weight.zero_()
        norm.bias.fill_(1.0)
    return model


def test_one_embedding_for_all_texts_is_no_score(tower_folders, evaluation_data, tmp_path, capsys):
    make_constant(make_model(tower_folders[0])).save_pretrained(
        str(tmp_path / "constant"), create_model_card=False
    )
    output = tmp_path / "out"
    code, told = run(
        capsys,
        tmp_path / "constant",
        "--task",
        "senteval/STSB",
        "--data",
        evaluation_data,
        "--output-dir",
        output,
    )
    assert code == 2
    fault = f"senteval/STSB, {tmp_path / 'constant'}: spearman_all is undefined, as when all texts "
    assert f"{fault}have the same embedding; check the model's weights and the set." in told.err
    assert results(output)["suites"]["tasks"]["rows"][0]["score"] is None


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--suite", "sts7x"], "Did you mean 'sts7'?"),
        (["--suite", "jtcse-retrieval45"], "Use tncse-retrieval30, whose tasks are named"),
        (["--task", "STS17:en-eng"], "Did you mean 'en-en'?"),
        (["--task", "senteval/STSB", "--data", "nowhere"], "nowhere does not exist"),
        ([], "give --suite, --task or --data FILE"),
    ],
)
def test_faults_are_one_sentence(model_folders, arguments, message, capsys):
    code, told = run(capsys, model_folders[0], *arguments)
    assert code == 2
    assert message in told.err
    assert len(told.err.splitlines()) == 1


def test_a_model_is_needed_and_must_exist(tmp_path, capsys):
    assert run(capsys)[0] == 2
    code, told = run(capsys, tmp_path / "nowhere", "--task", "senteval/STSB")
    assert code == 2
    assert "is not a local folder" in told.err


def test_faulty_data_are_told_before_anything_is_run(model_folders, tmp_path, capsys):
    write_rows(tmp_path / "sts" / "sts12.test.jsonl", make_pairs(4, 1))
    write_rows(
        tmp_path / "sts" / "stsb.test.jsonl", [{"sentence1": "a", "sentence2": "b", "score": 9}]
    )
    tasks = "--task", "senteval/STS12", "--task", "senteval/STSB"
    code, told = run(
        capsys, model_folders[0], *tasks, "--data", tmp_path, "--output-dir", tmp_path / "out"
    )
    assert code == 2
    assert "stsb.test.jsonl:1: expected a score of 0 to 5" in told.err
    assert not (tmp_path / "out").exists()


def test_the_list_names_every_suite(capsys):
    code, told = run(capsys, "--list")
    assert code == 0
    for name in ("sts7", "sts3-en", "jtcse-bitext15", "cosent-zh-sts5", "senteval-transfer7"):
        assert name in told.out


def test_without_mteb_the_command_says_what_to_install(model_folders, tmp_path):
    script = (
        "import sys; sys.modules['mteb'] = None; from st_jtcse.cli.eval import main; "
        f"assert main([{str(model_folders[0])!r}, '--task', 'STS12']) == 2"
    )
    told = run_code(script, folder=tmp_path).strip()
    assert (
        told
        == "--task: MTEB is not installed; install it with: pip install 'st-jtcse[evaluation]'."
    )


@pytest.fixture
def own_files(tmp_path):
    words = sorted({word for pair in make_pairs(40, 5) for word in pair["sentence1"].split()})
    labelled, graded = tmp_path / "topics.jsonl", tmp_path / "graded.csv"
    write_rows(labelled, [{"text": f"{a} {b}", "label": a} for a in words[:6] for b in words[6:14]])
    lines = [
        f"{pair['sentence1']},{pair['sentence2']},{pair['score']}" for pair in make_pairs(30, 5)
    ]
    graded.write_text("\n".join(["sentence1,sentence2,score", *lines]) + "\n")
    return labelled, graded


def test_own_files_are_measured_and_the_second_model_has_its_verdicts(
    model_folders, own_files, tmp_path, capsys
):
    output, other = tmp_path / "out", tmp_path / "other"
    shutil.copytree(model_folders[1], other)
    files = [word for path in own_files for word in ("--data", path)]
    code, told = run(capsys, model_folders[0], other, *files, "--output-dir", output)
    assert code == 0
    base, found = results(output / model_folders[0].name), results(output / "other")
    assert "beside" not in base
    topics, graded, whole = found["beside"]["verdicts"]
    rows = [
        {row["label"]: row["score"] for row in each["suites"]["data"]["rows"]}
        for each in (base, found)
    ]
    assert [topics["base"], topics["score"]] == pytest.approx(
        [row["topics"] for row in rows], abs=1e-3
    )
    assert [graded["base"], graded["score"]] == pytest.approx(
        [row["graded"] for row in rows], abs=1e-3
    )
    assert whole["score"] == pytest.approx((topics["score"] + graded["score"]) / 2, abs=1e-3)
    for verdict in (topics, graded, whole):
        assert verdict["low"] <= verdict["score"] - verdict["base"] <= verdict["high"]
        assert verdict["sentence"] in told.out
        assert verdict["sentence"] in (output / "other" / "results.md").read_text()


def test_a_corpus_is_searched_by_models_words_and_both(model_folders, tmp_path, capsys):
    texts = list(dict.fromkeys(pair["sentence1"] for pair in make_pairs(60, 5)))[:30]
    folder, other, output = tmp_path / "mine", tmp_path / "other", tmp_path / "out"
    folder.mkdir()
    write_rows(
        folder / "corpus.jsonl", [{"_id": str(at), "text": text} for at, text in enumerate(texts)]
    )
    lines = [f"{text.partition(' ')[2]},{at}" for at, text in enumerate(texts[:12])]
    (folder / "queries.csv").write_text("\n".join(["query,relevant", *lines]) + "\n")
    shutil.copytree(model_folders[1], other)
    models = model_folders[0], other
    code, told = run(capsys, *models, "--data", folder, "--output-dir", output)
    assert code == 0
    base, found = results(output / model_folders[0].name), results(output / "other")
    labels = [row["label"] for row in found["suites"]["data"]["rows"]]
    assert labels == ["mine", "mine BM25", "mine with BM25"]
    rows = [each["suites"]["data"]["search"] for each in (base, found)]
    assert rows[0]["mine BM25"] == rows[1]["mine BM25"]
    assert list(rows[0]["mine"]) == ["ndcg@10", "map@100", "recall@10", "recall@100", "mrr@10"]
    alone, summed = found["beside"]["verdicts"]
    assert [alone["set"], summed["set"]] == ["mine", "mine with BM25"]
    for verdict in (alone, summed):
        figures = [each[verdict["set"]]["ndcg@10"] for each in rows]
        assert [verdict["base"], verdict["score"]] == pytest.approx(figures, abs=1e-3)
        assert verdict["sentence"] in told.out
    assert "the relevant results that moved most" in told.out
    html = (output / "other" / "index.html").read_text()
    assert "What changed for mine" in html and "are equal. Below, the relevant" in html
    assert "What changed" not in (output / model_folders[0].name / "index.html").read_text()
    page = (output / "other" / "results.md").read_text()
    assert "12 queries, 30 documents" in page and "recall@100" in page
    # The same by naming both files.
    pair = "--data", folder / "queries.csv", "--corpus", folder / "corpus.jsonl"
    assert run(capsys, *models, *pair)[1].out.count(f"{alone['score']:.2f}")
    code, told = run(capsys, models[0], "--corpus", folder, "--task", "STS12")
    assert code == 2 and "--corpus: expected one --data file of queries beside it" in told.err


def test_a_model_beside_itself_is_equal(model_folders, own_files, tmp_path, capsys):
    same = tmp_path / "same"
    shutil.copytree(model_folders[0], same)
    assert run(capsys, model_folders[0], same, "--data", own_files[0])[0] == 0
    assert (
        run(capsys, model_folders[0], same, "--data", own_files[0])[1].out.count("topics: equal")
        == 1
    )


def test_a_set_that_is_not_defined_for_a_model_has_no_verdict(
    model_folders, own_files, tmp_path, capsys, recwarn
):
    make_constant(make_model(model_folders[0])).save_pretrained(
        str(tmp_path / "one"), create_model_card=False
    )
    files = [word for path in own_files for word in ("--data", path)]
    for models in ((model_folders[0], tmp_path / "one"), (tmp_path / "one", model_folders[0])):
        code, told = run(capsys, *models, *files, "--output-dir", tmp_path / models[1].name)
        assert code == 2 and "1 of 2 tasks have no result: data/graded." in told.err
        assert f"data/graded, {tmp_path / 'one'}: spearman_cosine is undefined" in told.err
        found = results(tmp_path / models[1].name / models[1].name)["beside"]["verdicts"]
        assert [verdict["set"] for verdict in found] == ["topics"]
    assert not [
        warning
        for warning in recwarn
        if warning.category.__module__.startswith(("sklearn", "numpy"))
    ]


def test_files_and_models_that_do_not_go_together(model_folders, own_files, tmp_path, capsys):
    code, told = run(capsys, *model_folders, "--data", own_files[0])
    assert code == 2 and "Several models are called 'mine'" in told.err
    code, told = run(capsys, model_folders[0], "--data", tmp_path / "missing.jsonl")
    assert code == 2 and "missing.jsonl does not exist" in told.err
    (tmp_path / "deeper").mkdir()
    again = shutil.copy(own_files[0], tmp_path / "deeper")
    code, told = run(capsys, model_folders[0], "--data", own_files[0], "--data", again)
    assert code == 2 and "two files are called 'topics'" in told.err
    code, told = run(
        capsys,
        model_folders[0],
        "--data",
        tmp_path,
        "--data",
        tmp_path / "deeper",
        "--task",
        "STS12",
    )
    assert code == 2 and "expected at most one folder, found 2" in told.err
