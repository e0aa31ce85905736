import hashlib
import json
import tracemalloc
from concurrent.futures import ThreadPoolExecutor
from itertools import islice

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from st_jtcse.abilities.sentence_views.next_sentences import NEXT_PEAK, with_next
from st_jtcse.data import Source, load_sentences
from st_jtcse.data.arrow_files import claim_partial, working_folder
from st_jtcse.data.rows import read_rows
from st_jtcse.data.sentences import HELD_OUT_PEAK, hold_out
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
    pairs = write(
        tmp_path / "p.jsonl",
        '{"a": "1a", "b": "1b"}\n{"a": "2a", "b": ""}\n{"a": "3a", "b": "3b"}\n',
    )
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
        (
            "a.txt",
            b"good\nb\xffd\n",
            "a.txt:2: expected UTF-8, found the byte 0xff; convert the file.",
        ),
        (
            "a.txt",
            b"\x7fELF\0\0",
            "a.txt:1: expected text, found a binary file; give a UTF-8 text file.",
        ),
        ("a.txt", "", "a.txt is empty; give a file with text."),
        ("a.txt", "\n \n", "a.txt holds no sentence, only blank lines; give a source with text."),
        (
            "a.jsonl",
            '{"sentence": "x"}\nnope\n',
            "a.jsonl:2: expected a JSON object, found 'nope'; correct the line.",
        ),
        (
            "a.jsonl",
            '{"text": "x"}\n',
            "a.jsonl:1: expected the column 'sentence', found text; name the sentence",
        ),
        (
            "a.jsonl",
            '{"sentence": 3}\n',
            "a.jsonl:1: expected text in 'sentence', found 3; correct the row.",
        ),
        (
            "a.csv",
            "sentence,b\nx\n",
            "a.csv:2: expected 2 cells, as in the first line; quote cells that hold commas.",
        ),
        ("a.parquet", "no parquet", "a.parquet: not a Parquet file"),
        (
            "a.odt",
            "x",
            "expected a file ending in .txt, .jsonl, .csv, .parquet, .tsv, found '.odt'; rename or "
            "convert it.",
        ),
    ],
)
def test_faults_name_the_place_and_the_way_out(tmp_path, name, content, message):
    assert message in fault_of(write(tmp_path / name, content))


def test_missing_files_folders_and_datasets_are_told(tmp_path):
    assert "none.txt does not exist; check the path" in fault_of(tmp_path / "none.txt")
    (tmp_path / "d.txt").mkdir()
    assert "d.txt: expected files of documents (.md, .txt, .html, .pdf, .docx, .rst)" in fault_of(
        tmp_path / "d.txt"
    )
    assert "cannot be loaded" in fault_of(Source(dataset=str(tmp_path / "nothing")))


def test_the_hash_is_that_of_the_lines(tmp_path):
    loaded = sentences(write(tmp_path / "a.txt", " é one\n\ntwo\u2028\tb \n"))
    assert loaded.sha256 == hashlib.sha256("é one\ntwo\u2028\tb\n".encode()).hexdigest()


def test_a_text_file_has_lines_whatever_columns_are_named(tmp_path):
    path = write(tmp_path / "a.txt", "one\n")
    assert sentences(Source(file=path, columns=("text",))).dataset["sentence"][:] == ["one"]


@pytest.fixture
def large(tmp_path, monkeypatch):
    """Two files that count as large, what reads them, and what they hold where they do not."""
    text = write(
        tmp_path / "t.txt",
        "\n".join(f"a line {number % 7 or ''}" for number in range(40)) + "\n\n\nlast \n",
    )
    rows = write(tmp_path / "p.jsonl", '{"a": "1a", "b": ""}\n{"a": "2a", "b": "2b"}\n')
    sources = [Source(file=text), Source(file=rows, columns=("a", "b"))]
    held = load_sentences(sources)
    monkeypatch.setattr("st_jtcse.data.sentences._LARGE", 1)
    reads = []
    monkeypatch.setattr(
        "st_jtcse.data.rows.read_rows",
        lambda source: reads.append(source) or read_rows(source),
    )
    return sources, held, reads


def told(loaded):
    return (
        loaded.rows["sentence"][:],
        loaded.rows["document"][:],
        loaded.rows["title"][:],
        loaded.rows["heading"][:],
        loaded.skipped_blank,
        loaded.sha256,
    )


def test_a_large_text_is_converted_once_and_read_from_the_disk(large, tmp_path):
    sources, held, reads = large
    for _ in range(2):
        loaded = load_sentences(sources, tmp_path / "cache")
        assert told(loaded) == told(held) and held.skipped_blank == 3
        (file,) = (tmp_path / "cache").glob("*.arrow")
        assert [found["filename"] for found in loaded.dataset.cache_files] == [str(file)]
    assert reads == sources
    # Another text is another file, also under the same name.
    write(sources[0].file, "other\n")
    assert load_sentences(sources, tmp_path / "cache").dataset["sentence"][:] == [
        "other",
        "1a",
        "2a",
        "2b",
    ]
    assert len(list((tmp_path / "cache").glob("*.arrow"))) == 2


@pytest.mark.parametrize(
    "damage", [lambda whole: whole[:-9], lambda whole: whole[:500] + b"x" + whole[501:]]
)
def test_a_damaged_or_unfinished_conversion_is_made_again(large, tmp_path, damage):
    sources, held, reads = large
    load_sentences(sources, tmp_path / "cache")
    (file,) = (tmp_path / "cache").glob("*.arrow")
    whole = file.read_bytes()
    file.write_bytes(damage(whole))
    claim_partial(working_folder(file), "text").write_bytes(whole[:100])  # As left by a kill.
    assert told(load_sentences(sources, tmp_path / "cache")) == told(held)
    assert file.read_bytes() == whole and reads == sources * 2
    assert sorted(path.suffix for path in file.parent.iterdir()) == [".arrow", ".lock"]


def test_of_two_at_once_one_converts_and_the_other_waits(large, tmp_path):
    sources, held, reads = large
    with ThreadPoolExecutor(2) as pool:
        both = [pool.submit(load_sentences, sources, tmp_path / "cache") for _ in range(2)]
    assert [told(one.result()) for one in both] == [told(held)] * 2 and reads == sources


def test_a_fault_of_a_large_text_is_told_and_nothing_is_kept(large, tmp_path):
    sources, _, _ = large
    write(sources[0].file, b"good\nb\xffd\n")
    with pytest.raises(
        UserError, match=r"t\.txt:2: expected UTF-8, found the byte 0xff; convert the file"
    ):
        load_sentences(sources, tmp_path / "cache")
    assert [path.suffix for path in (tmp_path / "cache").iterdir()] == [".lock"]
    with pytest.raises(
        UserError,
        match=r"cache: a part of this path is a file: move it, or choose another cache_dir",
    ):
        load_sentences([Source(file=sources[1].file, columns=("a",))], sources[0].file / "cache")


@pytest.fixture
def folder(tmp_path):
    """A data set of three files of 20 sentences."""
    folder = tmp_path / "corpus"
    folder.mkdir()
    for number in range(3):
        rows = [{"sentence": f" {number} {row} "} for row in range(20)] + [{"sentence": " "}]
        (folder / f"train-{number}.jsonl").write_text(
            "".join(json.dumps(row) + "\n" for row in rows)
        )
    return Source(dataset=str(folder))


def look_at(sources):
    return load_sentences(sources, streaming=True)


def texts(folder, seed, count, skip=0):
    rows = look_at([folder]).stream(seed)
    return [row["sentence"] for row in islice(rows, skip, skip + count)]


def test_every_sentence_comes_once_a_pass_in_an_order_of_the_seed(folder, monkeypatch):
    everything = {f"{number} {row}" for number in range(3) for row in range(20)}
    found = texts(folder, 1, 120)
    assert set(found[:60]) == set(found[60:]) == everything and found[:60] != found[60:]
    assert found == texts(folder, 1, 120) and found[100:] == texts(folder, 1, 20, skip=100)
    assert found != texts(folder, 2, 120)
    # Without a buffer the order of the files shows.
    monkeypatch.setattr("st_jtcse.data.rows._BUFFER", 1)
    files = [[text.split()[0] for text in texts(folder, seed, 60)][::20] for seed in range(4)]
    assert (
        all(sorted(order) == ["0", "1", "2"] for order in files) and len(set(map(tuple, files))) > 1
    )


def test_what_is_looked_at_first_stands_for_the_rest(folder, tmp_path):
    looked = look_at([folder])
    assert looked.dataset["sentence"][:3] == ["0 0", "0 1", "0 2"] and len(looked.dataset) == 60
    assert looked.sha256 != look_at([Source(dataset=folder.dataset, limit=5)]).sha256
    assert set(texts(Source(dataset=folder.dataset, limit=5), 1, 10)) == {
        f"0 {row}" for row in range(5)
    }
    with pytest.raises(UserError, match="cannot be loaded"):
        look_at([Source(dataset=str(tmp_path / "nothing"))])
    with pytest.raises(UserError, match="row 1: expected the column 'text', found sentence"):
        look_at([Source(dataset=folder.dataset, columns=("text",))])


@pytest.mark.parametrize(("split", "foretold"), [(hold_out, HELD_OUT_PEAK), (with_next, NEXT_PEAK)])
def test_the_memory_of_a_split_is_as_foretold(tmp_path, split, foretold):
    count = 100_000
    (tmp_path / "text.txt").write_text("".join(f"sentence {row}\n" for row in range(count)))
    sentences = load_sentences([Source(file=tmp_path / "text.txt")])
    tracemalloc.start()
    split(sentences)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert foretold == pytest.approx(peak / count, rel=0.25)
