"""Files of sentences, pairs and labels."""

import gzip

import pyarrow as pa
import pyarrow.parquet as pq

from inputs.row import Row

PAIR = '{"sentence1": "a dog", "sentence2": "a cat", "score": 1}\n'
DEEP = "[" * 200_000 + "]" * 200_000


def parquet(damage=lambda raw: raw, **columns):
    """A Parquet file of these columns, damaged."""

    def build(path, world):
        pq.write_table(pa.table(columns), path, compression="none")
        path.write_bytes(damage(path.read_bytes()))

    return build


def text(name, file, content, sentence):
    """Sentences to train on."""
    return Row(
        name,
        f"st-train {{recipe}} --output-dir out --set data.train={file}",
        sentence,
        files={file: content},
    )


def dev(name, file, content, sentence):
    """A set to choose checkpoints by."""
    return Row(
        name,
        f"st-train {{recipe}} --output-dir out --set evaluate.dev={file}",
        sentence,
        files={file: content},
    )


def graded(name, score, sentence):
    """Graded pairs, the score of the second as written."""
    rows = PAIR + PAIR.replace("1}", f"{score}}}")
    return dev(name, "p.jsonl", rows, f"p.jsonl:2: {sentence}")


def labelled(name, content, sentence, more=""):
    """Labelled rows to train on."""
    command = f"st-train {{labelled}} --set 'data={{pairs: p.jsonl{more}}}'"
    return Row(name, command, sentence, files={"p.jsonl": content})


def dataset(name, value, sentence, status=2, **files):
    """The arguments of `datasets.load_dataset`."""
    command = f"st-train {{recipe}} --output-dir out --set 'data.train={value}'"
    return Row(
        name,
        command,
        sentence,
        status,
        files={file.replace("_", "."): content for file, content in files.items()},
    )


ROWS = [
    Row(
        "a file of sentences that is not there",
        "st-train {recipe} --output-dir out --set data.train=none.txt",
        "none.txt does not exist; check the path.",
    ),
    Row(
        "a folder of sentences",
        "st-train {recipe} --output-dir out --set data.train=folder",
        "folder: expected files of documents (.md, .txt, .html, .pdf, .docx, .rst), found none",
        files={"folder/a.txt": "a\n"},
    ),
    Row(
        "a folder with an image that is none",
        "st-train {recipe} --output-dir out --set data.train=folder",
        "folder/a.png: the image cannot be read (cannot identify image file",
        files={"folder/a.png": b"no image"},
    ),
    text("an empty file of sentences", "t.txt", "", "t.txt is empty; give a file with text."),
    text("blank lines only", "t.txt", "\n \n\t\n", "t.txt holds no sentence, only blank lines"),
    text("fewer sentences than a batch", "t.txt", "a dog\n", "fewer than one batch of 8"),
    text(
        "sentences in Latin-1",
        "t.txt",
        "a\ncafé\n".encode("latin-1"),
        "t.txt:2: expected UTF-8, found the byte 0xe9",
    ),
    text("sentences in UTF-16", "t.txt", "a dog\n".encode("utf-16"), "t.txt:1: expected"),
    text(
        "a binary file of sentences",
        "t.txt",
        b"a\n\0\0\n",
        "t.txt:2: expected text, found a binary file",
    ),
    text(
        "compressed sentences",
        "t.txt.gz",
        gzip.compress(b"a\n"),
        "expected a file ending in .txt, .jsonl, .csv",
    ),
    text(
        "compressed sentences called text",
        "t.txt",
        gzip.compress(b"a\n" * 99, mtime=0),
        "t.txt:1: expected",
    ),
    text("an unknown ending", "t.docx", "a\n", "found '.docx'; rename or convert it."),
    text("no ending", "sentences", "a\n", "found 'no ending'; rename or convert it."),
    text(
        "JSONL that is none",
        "t.jsonl",
        '{"sentence": "a"}\n{sentence: a}\n',
        "t.jsonl:2: expected a JSON object",
    ),
    text("JSONL of a list", "t.jsonl", '["a", "b"]\n', "t.jsonl:1: expected a JSON object, found"),
    text(
        "JSONL that is cut off",
        "t.jsonl",
        '{"sentence": "a"}\n{"sente',
        "t.jsonl:2: expected a JSON object",
    ),
    text(
        "JSONL nested 200,000 deep",
        "t.jsonl",
        f'{{"sentence": {DEEP}}}\n',
        "with too many digits or levels",
    ),
    text(
        "half a character in JSONL",
        "t.jsonl",
        '{"sentence": "a \\ud800"}\n',
        "'\\ud800', half a character",
    ),
    text(
        "an integer of 5,000 digits in JSONL",
        "t.jsonl",
        f'{{"n": {"1" * 5000}}}\n',
        "t.jsonl:1: expected a JSON object",
    ),
    text(
        "JSONL without the column",
        "t.jsonl",
        '{"text": "a"}\n',
        "expected the column 'sentence', found text",
    ),
    text(
        "a number for a sentence",
        "t.jsonl",
        '{"sentence": 7}\n',
        "expected text in 'sentence', found 7",
    ),
    text(
        "CSV without the column",
        "t.csv",
        "a,b\n1,2\n",
        "expected the column 'sentence', found a, b",
    ),
    text(
        "CSV of uneven rows",
        "t.csv",
        "sentence,b\none\n",
        "t.csv:2: expected 2 cells, as in the first line",
    ),
    text(
        "CSV with an open quote", "t.csv", 'sentence\n"a dog\n', "not CSV (unexpected end of data)"
    ),
    text(
        "CSV of a header only", "t.csv", "sentence\n", "t.csv holds no sentence, only blank lines"
    ),
    text(
        "CSV cells beyond the limit",
        "t.csv",
        f"sentence\n{'a' * 200_000}\n",
        "not CSV (field larger than field limit",
    ),
    text("a Parquet file that is none", "t.parquet", b"PAR1" * 9, "t.parquet: not a Parquet file"),
    text(
        "a Parquet file cut in half",
        "t.parquet",
        parquet(lambda raw: raw[: len(raw) // 2], sentence=["a"]),
        "t.parquet",
    ),
    text(
        "a corrupt page of Parquet",
        "t.parquet",
        parquet(lambda raw: raw[:4] + b"\xff" * 60 + raw[64:], sentence=["a dog runs"] * 99),
        "t.parquet: not a Parquet file",
    ),
    text(
        "Parquet without the column",
        "t.parquet",
        parquet(text=["a"]),
        "t.parquet row 1: expected the column",
    ),
    text(
        "Parquet of bytes that are no text",
        "t.parquet",
        parquet(
            lambda raw: raw.replace(b"a dog runs", b"\xff\xfe\xff\xfe\xff\xfe\xff\xfe\xff\xfe"),
            sentence=["a dog runs"],
        ),
        "t.parquet: not a Parquet file",
    ),
    dataset(
        "JSON nested 200,000 deep as a dataset",
        "{dataset: json, data_files: t.jsonl}",
        "t.jsonl:1: expected at most 500 levels, found more; flatten it.",
        t_jsonl=f'{{"sentence": {DEEP}}}\n',
    ),
    dataset(
        "a dataset of no Hub",
        "{dataset: nobody/nothing}",
        "dataset 'nobody/nothing' (train) cannot be loaded",
        3,
    ),
    dataset(
        "a dataset's split that is none",
        "{dataset: json, data_files: t.jsonl, split: dev}",
        "cannot be loaded",
        t_jsonl="{}",
    ),
    dataset(
        "a dataset's files that are none",
        "{dataset: json, data_files: none.jsonl}",
        "cannot be loaded",
    ),
    dev("graded pairs as text", "p.txt", "a\tb\t1\n", "sets need columns, found a text file"),
    dev("one graded pair", "p.jsonl", PAIR, "holds 1 pairs; a rank correlation needs at least 2."),
    dev(
        "graded pairs of one score",
        "p.jsonl",
        PAIR * 3,
        "every score is 1, so nothing can be ranked",
    ),
    dev(
        "graded pairs without a score",
        "p.jsonl",
        '{"sentence1": "a", "sentence2": "b"}\n',
        "(sentence1, sentence2, score; sentence1, sentence2, label; text, label; image, label; "
        "query, relevant; "
        "anchor, positive, negative), found sentence1, sentence2. Rename them, or say what they "
        "are called, e.g. columns: {query: question, relevant: answer}.",
    ),
    dev(
        "labelled texts of other columns",
        "p.csv",
        "text,intent\na,b\n",
        "found text, intent. Rename them",
    ),
    dev("a set of a header only", "p.csv", "text,label\n", "found no row. Rename them"),
    dev(
        "an empty label",
        "p.csv",
        "text,label\na,x\nb,\n",
        "p.csv:3: 'label' is empty; fill it or remove the row.",
    ),
    dev(
        "texts of one label",
        "p.csv",
        "text,label\na,x\nb,x\n",
        "1 labels in 2 rows have nothing to tell apart;",
    ),
    Row(
        "columns that a set has not",
        "st-train {recipe} --output-dir out --set 'evaluate.dev={file: p.csv, columns: [a, b, c]}'",
        "p.csv:2: expected the columns a, b, c, found a, b; add 'c' or name the columns",
        files={"p.csv": "a,b\n1,2\n"},
    ),
    Row(
        "a set that a cross-encoder cannot be measured on",
        "st-train {labelled} --set 'stages.one.model={cross_encoder: {first}}' "
        "--set 'stages.one.loss={type: CrossEncoderCoSENTLoss}' --set 'evaluate={test: {intents: "
        "p.csv}}'",
        "Stage 'one': a cross-encoder is measured on graded pairs (sentence1, sentence2, score), "
        "and",
        files={"p.csv": "text,label\na,x\nb,x\nc,y\n"},
    ),
    graded("a score that is a word", '"high"', "expected a number in 'score', found 'high'"),
    graded("a score that is null", "null", "expected a number in 'score', found None"),
    graded("a score that is NaN", "NaN", "expected a number in 'score', found nan"),
    graded("a score beyond float", "1" + "0" * 400, "expected a number in 'score', found 1000"),
    graded(
        "a score outside the range",
        "7",
        "the score 7 is outside 0 to 5; correct it or set score_range.",
    ),
    dev(
        "an empty sentence in pairs",
        "p.jsonl",
        PAIR.replace("a dog", " "),
        "p.jsonl:1: 'sentence1' is empty",
    ),
    dev(
        "more faults than are told",
        "p.jsonl",
        PAIR.replace("1}", '"x"}') * 9,
        "and 4 more rows like these",
    ),
    labelled(
        "labelled rows without a column",
        '{"a": 1}\n',
        "expected the columns sentence1, sentence2, score, found a",
    ),
    labelled(
        "labels that are words",
        PAIR.replace("1}", '"yes"}'),
        "expected a number in 'score', found 'yes'",
    ),
    Row(
        "a class beyond integers",
        "st-train {labelled} --set 'data={pairs: p.jsonl, labels: classes}' "
        "--set 'stages.one.loss={type: SoftmaxLoss, embedding_dimension: 32, num_labels: 2}'",
        "p.jsonl:1: expected a class, a whole number from 0, in 'label', found 1e+300",
        files={"p.jsonl": PAIR.replace("score", "label").replace("1}", "1e300}") * 9},
    ),
    labelled("a label that the mapping lacks", PAIR, "expected one of yes", ", mapping: {yes: 1}"),
    labelled(
        "labelled rows of one score", PAIR * 9, "every score is the same, so nothing can be ranked"
    ),
    labelled(
        "whole numbers that look like classes",
        PAIR * 9 + PAIR.replace("1}", "2}"),
        "so they look like classes",
    ),
]
