import hashlib
import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from st_jtcse.data import Source, load_sentences
from st_jtcse.errors import UserError


def write(path, content):
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def sentences(*sources):
    return load_sentences([s if isinstance(s, Source) else Source(file=s) for s in sources])


def fault_of(*sources):
    with pytest.raises(UserError) as caught:
        sentences(*sources)
    return str(caught.value)


def test_text_lines_are_stripped_and_blank_ones_counted(tmp_path):
    path = write(tmp_path / "a.txt", "\ufeffOne bird.\r\n\n  Two\u2028birds. \n \t\nThree.")
    loaded = sentences(path)
    # U+2028 is part of a sentence, not the end of a line.
    assert loaded.dataset["sentence"][:] == ["One bird.", "Two\u2028birds.", "Three."]
    assert loaded.skipped_blank == 2


def test_every_format_gives_the_same_sentences(tmp_path):
    rows = [{"sentence": "A, b.", "other": "x"}, {"sentence": 'He said "no".', "other": "y"}]
    text = write(tmp_path / "a.txt", "".join(row["sentence"] + "\n" for row in rows))
    jsonl = write(tmp_path / "a.jsonl", "".join(json.dumps(row) + "\n" for row in rows))
    table = write(tmp_path / "a.csv", 'sentence,other\n"A, b.",x\n"He said ""no"".",y\n')
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "a.parquet")
    loaded = [sentences(path) for path in (text, jsonl, table, tmp_path / "a.parquet")]
    assert {x.sha256 for x in loaded} == {loaded[0].sha256}
    assert loaded[3].dataset["sentence"][:] == ["A, b.", 'He said "no".']


def test_sources_columns_and_limit(tmp_path):
    pairs = write(tmp_path / "p.jsonl", '{"a": "1a", "b": "1b"}\n{"a": "2a", "b": ""}\n{"a": "3a", "b": "3b"}\n')
    text = write(tmp_path / "t.txt", "x\ny\nz\n")
    loaded = sentences(Source(file=text, limit=2), Source(file=pairs, columns=("b", "a"), limit=2))
    assert loaded.dataset["sentence"][:] == ["x", "y", "1b", "1a", "2a"]
    assert loaded.skipped_blank == 1


def test_a_dataset_folder_is_read_by_load_dataset(tmp_path, monkeypatch):
    monkeypatch.setattr("datasets.config.HF_DATASETS_CACHE", tmp_path / "cache")
    folder = tmp_path / "corpus"
    folder.mkdir()
    pq.write_table(pa.table({"text": ["one", "two"], "id": [1, 2]}), folder / "train.parquet")
    # A single text column needs no name.
    assert sentences(Source(dataset=str(folder))).dataset["sentence"][:] == ["one", "two"]


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.txt", b"good\nb\xffd\n", "a.txt:2: expected UTF-8, found the byte 0xff; convert the file."),
        ("a.txt", b"\x7fELF\0\0", "a.txt:1: expected text, found a binary file; give a UTF-8 text file."),
        ("a.txt", "", "a.txt is empty; give a file with text."),
        ("a.txt", "\n \n", "a.txt holds no sentence, only blank lines; give a source with text."),
        ("a.jsonl", '{"sentence": "x"}\nnope\n', "a.jsonl:2: expected a JSON object, found 'nope'; correct the line."),
        ("a.jsonl", '{"text": "x"}\n', "a.jsonl:1: expected the column 'sentence', found text; name the sentence"),
        ("a.jsonl", '{"sentence": 3}\n', "a.jsonl:1: expected text in 'sentence', found 3; correct the row."),
        ("a.csv", "sentence,b\nx\n", "a.csv:2: expected 2 cells, as in the first line; quote cells that hold commas."),
        ("a.parquet", "no parquet", "a.parquet: not a Parquet file"),
        ("a.docx", "x", "expected a file ending in .txt, .jsonl, .csv, .parquet, found '.docx'; rename or convert it."),
    ],
)
def test_faults_name_the_place_and_the_way_out(tmp_path, name, content, message):
    assert message in fault_of(write(tmp_path / name, content))


def test_missing_files_folders_and_datasets_are_told(tmp_path):
    assert "none.txt does not exist; check the path" in fault_of(tmp_path / "none.txt")
    (tmp_path / "d.txt").mkdir()
    assert "d.txt is a folder without images; give a file, or a folder of images." in fault_of(tmp_path / "d.txt")
    assert "cannot be loaded" in fault_of(Source(dataset=str(tmp_path / "nothing")))


def test_the_hash_is_that_of_the_lines(tmp_path):
    loaded = sentences(write(tmp_path / "a.txt", " é one\n\ntwo\u2028\tb \n"))
    assert loaded.sha256 == hashlib.sha256("é one\ntwo\u2028\tb\n".encode()).hexdigest()


def test_a_text_file_has_lines_whatever_columns_are_named(tmp_path):
    path = write(tmp_path / "a.txt", "one\n")
    assert sentences(Source(file=path, columns=("text",))).dataset["sentence"][:] == ["one"]
