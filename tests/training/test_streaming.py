"""A stage trained on a data set that is read meanwhile, and what cannot be done with one."""

import gzip
import json
from itertools import islice

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from conftest import make_sentences, save_encoder

from st_jtcse.cli.train import main
from st_jtcse.data import Source, load_sentences
from st_jtcse.errors import UserError
from st_jtcse.training.callbacks import TrainingTime


@pytest.fixture
def project(tmp_path, monkeypatch):
    """An encoder and a data set of two files."""
    monkeypatch.setattr("datasets.config.HF_DATASETS_CACHE", tmp_path / "cache")
    save_encoder(tmp_path / "a", 1, num_hidden_layers=2)
    (tmp_path / "corpus").mkdir()
    for number in range(2):
        rows = "".join(json.dumps({"sentence": text}) + "\n" for text in make_sentences(20, number))
        (tmp_path / "corpus" / f"train-{number}.jsonl").write_text(rows)
    return tmp_path


def train(project, *options, data=None, args=None, **stage):
    # More than a pass of 40.
    settings = {
        "max_steps": 8,
        "per_device_train_batch_size": 8,
        "logging_steps": 1,
        "save_steps": 6,
    }
    recipe = {
        "name": "tiny",
        "output_dir": str(project / "run"),
        "data": data or {"train": {"dataset": "./corpus"}, "streaming": True},
        "args": {**settings, "learning_rate": 1e-2, "use_cpu": True, "disable_tqdm": True}
        | (args or {}),
        "stages": [
            {
                "name": "one",
                "model": {"base": "./a", "pooling": "cls"},
                "loss": {"type": "SimCSELoss"},
                **stage,
            }
        ],
    }
    (project / "recipe.yaml").write_text(json.dumps(recipe))
    return main([str(project / "recipe.yaml"), *options])


def test_a_resumed_stage_goes_on_at_the_right_row(project, monkeypatch):
    assert train(project, "--output-dir", str(project / "straight")) == 0
    step_end = TrainingTime.on_step_end

    def stop(self, args, state, control, **given):
        if state.global_step == 7:
            raise KeyboardInterrupt
        step_end(self, args, state, control, **given)

    with monkeypatch.context() as patched:
        patched.setattr(TrainingTime, "on_step_end", stop)
        assert train(project) == 130
    assert [path.name for path in (project / "run").glob("*/checkpoint-*")] == ["checkpoint-6"]
    assert train(project, "--resume") == 0
    (straight,), (resumed,) = (
        json.loads((project / folder / "results.json").read_text())["stages"]
        for folder in ("straight", "run")
    )
    assert resumed["weights_sha256"] == straight["weights_sha256"]
    assert straight["steps"] == 8 and straight["sentences"] is None


@pytest.fixture
def local_files(project):
    """Sentences in a file of each kind, with a blank one, beside a column of numbers."""
    texts = [*make_sentences(12), "", *make_sentences(8, seed=1)]
    (project / "local.text").write_text("\n".join(texts) + "\n")
    cells = [f'{number},"{text}"' for number, text in enumerate(texts)]
    (project / "local.csv").write_text("\n".join(["id,line", *cells]) + "\n")
    lines = [json.dumps({"id": number, "line": text or None}) for number, text in enumerate(texts)]
    (project / "local.json").write_text("\n".join(lines) + "\n")
    table = pa.table({"id": range(len(texts)), "line": [text or None for text in texts]})
    pq.write_table(table, project / "local.parquet")
    return project, [text for text in texts if text]


@pytest.mark.parametrize("streaming", [False, True])
@pytest.mark.parametrize("builder", ["text", "csv", "json", "parquet"])
def test_local_files_are_read_by_the_builders_of_datasets(
    local_files, builder, streaming, monkeypatch
):
    folder, texts = local_files
    # Which `datasets` sleeps after each pass over Parquet files.
    monkeypatch.setattr("datasets.config.SLEEP_TIME_ON_THREADS_SHUTDOWN", 0)
    source = Source(dataset=builder, data_files=str(folder / f"local.{builder}"))
    found = load_sentences([source], folder / "cache", streaming)
    assert found.dataset["sentence"][:] == texts
    if streaming:
        passes = [row["sentence"] for row in islice(found.stream(3), 2 * len(texts))]
        first, second = passes[: len(texts)], passes[len(texts) :]
        assert first != second and sorted(first) == sorted(second) == sorted(texts)
    else:
        assert found.skipped_blank == 1 and found.stream(3) is None


@pytest.mark.parametrize("builder", ["text", "csv"])
def test_a_stage_trains_on_local_files_that_stream(local_files, builder):
    folder, _ = local_files
    source = {"dataset": builder, "data_files": str(folder / f"local.{builder}")}
    assert train(folder, data={"train": source, "streaming": True}, args={"max_steps": 2}) == 0
    (record,) = json.loads((folder / "run" / "results.json").read_text())["stages"]
    assert record["steps"] == 2


@pytest.mark.parametrize(
    ("name", "content", "told"),
    [
        ("text", b"a dog\n\xff\xfe\n", "cannot be loaded ('utf-8' codec can't decode byte 0xff"),
        (
            "text",
            gzip.compress(b"the dog runs\n" * 999, mtime=0)[:-20],
            "cannot be loaded (Compressed file",
        ),
        ("csv", b'line\na dog\n"a cat\n', "cannot be loaded (Error tokenizing data"),
        ("json", b"", "cannot be loaded ("),
        ("json", b'{"line": "a dog"}\n{"line":\n', "cannot be loaded ("),
        ("parquet", b"PAR1", "cannot be loaded ("),
        ("text", b"\n \n", "holds no sentence, only blank lines"),
        ("json", b'{"id": 1, "number": 2}\n', "the column 'sentence', found id, number"),
    ],
)
@pytest.mark.parametrize("streaming", [False, True])
def test_a_faulty_local_file_is_told(project, name, content, told, streaming):
    gz = ".gz" if content.startswith(b"\x1f") else ""
    (project / f"faulty.{name}{gz}").write_bytes(content)
    source = Source(dataset=name, data_files=str(project / f"faulty.{name}{gz}"))
    with pytest.raises(UserError) as refused:
        load_sentences([source], project / "cache", streaming)
    assert told in str(refused.value) and str(refused.value).endswith(".")


# pandas leaves the file open that it cannot read to its end.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.usefixtures("unrehearsed")
@pytest.mark.parametrize("workers", [0, 1])
def test_a_fault_far_down_a_stream_is_told_when_it_is_met(project, capsys, workers):
    # Beyond the first sentences, and beyond the rows that the builder reads at once.
    (project / "late.csv").write_text("line\n" + "the dog runs\n" * 12_000 + '"a cat\n')
    source = {"dataset": "csv", "data_files": str(project / "late.csv")}
    args = {"max_steps": 2, "dataloader_num_workers": workers}
    assert train(project, data={"train": source, "streaming": True}, args=args) == 2
    told = capsys.readouterr().err.splitlines()[-1]
    assert told.startswith("dataset 'csv' (train) cannot be loaded")
    assert told.endswith("with 'file'.")


def test_a_stream_whose_text_is_gone_ends_in_a_sentence(project):
    (project / "text.txt").write_text("the dog runs\na dog walks\n")
    found = load_sentences(
        [Source(dataset="text", data_files=str(project / "text.txt"))], streaming=True
    )
    sentences = iter(found.stream(1))
    assert {next(sentences)["sentence"] for _ in range(2)} == {"the dog runs", "a dog walks"}
    (project / "text.txt").write_text("\n\n")
    with pytest.raises(UserError, match="holds no sentence any more; restore"):
        next(sentences)


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        (
            {"args": {"max_steps": -1, "num_train_epochs": 2}},
            "data.streaming: expected a number of steps beside 'streaming', whose end is not "
            "known, found none. Give",
        ),
        (
            {"views": "neighbour"},
            "before training for views: neighbour, found 'streaming'. Remove one.",
        ),
        (
            {"evaluate": {"dev": "unlabelled"}},
            "expected all sentences before training for dev: unlabelled, found",
        ),
        (
            {"loss": {"type": "MSELoss"}, "teachers": [{"model": "./a", "pooling": "cls"}]},
            "for teachers without 'cache: false', found 'streaming'. Remove one.",
        ),
        ({"args": {"batch_sampler": "no_duplicates"}}, "for args.batch_sampler, found 'streaming'"),
        (
            {"args": {"train_sampling_strategy": "group_by_length"}},
            "for args.train_sampling_strategy, found 'streaming'",
        ),
        (
            {"data": {"train": "corpus/train-0.jsonl", "streaming": True}},
            "a 'dataset' in 'train' beside 'streaming', found a file",
        ),
    ],
)
def test_what_needs_all_sentences_is_refused(project, capsys, changes, told):
    assert train(project, **changes) == 2
    assert told in " ".join(capsys.readouterr().err.split())
    assert not (project / "run").exists()


def test_teachers_embed_what_streams(project):
    teachers = [{"model": "./a", "pooling": "mean", "cache": False}]
    assert train(project, args={"max_steps": 2}, loss={"type": "MSELoss"}, teachers=teachers) == 0
