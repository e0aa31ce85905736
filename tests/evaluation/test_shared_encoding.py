"""Two processes share what a model encodes, and have the bytes of one."""

import json
import os
import random
import shutil
import signal
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from conftest import make_labelled, make_pairs, make_sentences, write_rows
from processes import group_of_two, run_two, start
from sentence_transformers import SentenceTransformer

from st_jtcse import processes
from st_jtcse.cli import eval as command
from st_jtcse.evaluation.shared_encoding import encode_shared, found_together

pytestmark = pytest.mark.usefixtures("offline")


def varied(count, seed):
    """Texts of many lengths, many of them of one."""
    draw = random.Random(seed)
    return [" ".join(text.split()[: draw.randint(1, 6)]) for text in make_sentences(count, seed)]


@pytest.fixture(scope="module")
def sets(tmp_path_factory, evaluation_data):
    """Options that name a set of each kind, and tasks of MTEB and SentEval."""
    folder = tmp_path_factory.mktemp("sets")
    write_rows(folder / "graded.jsonl", make_pairs(150, 1))
    write_rows(folder / "topics.jsonl", make_labelled(150, 2, ("a", "b", "c")))
    queries = zip(varied(60, 3), varied(60, 4))
    write_rows(
        folder / "search.jsonl",
        [{"query": f"{number} {a}", "relevant": b} for number, (a, b) in enumerate(queries)],
    )
    corpus = folder / "corpus"
    texts = [f"{text} {number}" for number, text in enumerate(varied(200, 5))]
    write_rows(
        corpus / "corpus.jsonl",
        [{"_id": f"d{number}", "text": text} for number, text in enumerate(texts)],
    )
    asked = [{"_id": f"q{number}", "text": text} for number, text in enumerate(texts[::5])]
    write_rows(corpus / "queries.jsonl", asked)
    judged = [f"q{number}\td{5 * number}\t1" for number in range(len(asked))]
    (corpus / "qrels").mkdir()
    head = "query-id\tcorpus-id\tscore"
    (corpus / "qrels" / "test.tsv").write_text("\n".join([head, *judged]) + "\n")
    files = [folder / f"{name}.jsonl" for name in ("graded", "topics", "search")]
    found = [word for path in (*files, corpus) for word in ("--data", str(path))]
    tasks = ["--task", "STS12", "--task", "senteval/STSB"]
    return [*found, *tasks, "--data", str(evaluation_data), "--batch-size", "4"]


@pytest.fixture(scope="module")
def models(model_folders, tmp_path_factory):
    """Two models in folders of their own names."""
    folder = tmp_path_factory.mktemp("named")
    return [Path(shutil.copytree(model, folder / name)) for model, name in zip(model_folders, "ab")]


def evaluate(arguments, counts):
    """Run st-eval in a process that counts the texts it encodes."""
    encoded, forward = [], SentenceTransformer.forward

    def counted(model, features, **options):
        encoded.append(len(features["input_ids"]))
        return forward(model, features, **options)

    SentenceTransformer.forward = counted
    status = command.main(arguments)
    Path(f"{counts}-{os.environ['RANK']}").write_text(str(sum(encoded)))
    return status


def results(folder):
    found = json.loads((folder / "results.json").read_text())
    for record in found["tasks"].values():
        record.pop("seconds")
    return json.dumps(found)


def test_two_processes_leave_the_results_of_one(models, sets, tmp_path):
    arguments = [*map(str, models), *sets, "--output-dir"]
    together, alone = tmp_path / "together", tmp_path / "alone"
    run_two(evaluate, [*arguments, str(together)], tmp_path / "counts", folder=tmp_path)
    assert command.main([*arguments, str(alone)]) == 0  # So each model has each task's data.
    for model in models:
        assert results(together / model.name) == results(alone / model.name)
    first, second = (json.loads((tmp_path / f"counts-{rank}").read_text()) for rank in range(2))
    assert 0.4 < second / (first + second) <= 0.5
    assert "Wrote" in (tmp_path / "said-by-0.txt").read_text()
    assert (tmp_path / "said-by-1.txt").read_text() == ""


def encode(folder, texts, file):
    """What each process has of the texts' vectors, and of what the first comes to."""
    processes.join(use_cpu=True)
    model = SentenceTransformer(folder, device="cpu")
    by = partial(encode_shared, model, partial(model.encode, batch_size=8), texts, 8)
    found = found_together(model, by)
    np.save(f"{file}-{processes.rank()}.npy", found)
    processes.wait_for_all()
    return 0


@pytest.mark.parametrize("count", [3, 16, 61])
def test_vectors_are_those_of_one_process_to_the_bit(models, tmp_path, count):
    texts = varied(count, 6)
    run_two(encode, str(models[0]), texts, str(tmp_path / "found"), folder=tmp_path)
    model = SentenceTransformer(str(models[0]), device="cpu")
    expected = model.encode(texts, batch_size=8)
    for rank in range(2):
        assert np.load(tmp_path / f"found-{rank}.npy").tobytes() == expected.tobytes()


@pytest.mark.parametrize(
    ("fault", "status", "told"),
    [
        (["--data", "none.jsonl"], 2, "none.jsonl"),
        (["--task", "STS12", "--device", "cpu:0"], 2, "expected a kind of device"),
        (["--task", "NoSuchTask"], 2, "'NoSuchTask'"),
        ([], 2, "Nothing to evaluate"),
    ],
)
def test_a_fault_is_told_once(models, tmp_path, fault, status, told):
    ended, said = of_two([str(models[0]), *fault], tmp_path)
    assert ended == [status, status], said
    assert sum(one.count(told) for one in said) == 1 and "Traceback" not in "".join(said)


def test_models_that_differ_are_refused_once(models, tmp_path):
    each = [[str(model), "--task", "STS12"] for model in models]
    for rank, folder in enumerate(("one", "other")):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "model").symlink_to(each[rank][0])
    ended, said = of_two(["model", "--task", "STS12"], tmp_path, ("one", "other"))
    assert ended == [2, 2], said
    assert "".join(said).count("model: the processes found different models there") == 1


def test_a_process_whose_other_is_killed_says_so(models, sets, tmp_path):
    arguments = [str(models[0]), *sets, "--output-dir", str(tmp_path / "out")]
    ended, said = of_two(arguments, tmp_path, fault=True)
    assert ended == [2, -9], said
    assert said[0].count("Another process of this run has ended") == 1, said[0]
    assert "Traceback" not in said[0]
    assert json.loads((tmp_path / "out/results.json").read_text())["missing"] == {}


def of_two(arguments, folder, places=(".", "."), fault=False):
    """The statuses of two processes of st-eval, and what each says."""
    store, group = group_of_two()
    files = [folder / f"said-{rank}.txt" for rank in range(2)]
    started = [
        start(
            in_place,
            str(folder / places[rank]),
            arguments,
            fault and rank == 1,
            said=files[rank],
            RANK=str(rank),
            LOCAL_RANK=str(rank),
            **group,
        )
        for rank in range(2)
    ]
    for process in started:
        process.join(300)
    del store
    return [process.exitcode for process in started], [file.read_text() for file in files]


def in_place(folder, arguments, dies):
    os.chdir(folder)
    if dies:
        encoded, forward = [], SentenceTransformer.forward

        def last(model, features, **options):
            encoded.append(1)
            if len(encoded) == 20:
                os.kill(os.getpid(), signal.SIGKILL)
            return forward(model, features, **options)

        SentenceTransformer.forward = last
    return command.main(arguments)
