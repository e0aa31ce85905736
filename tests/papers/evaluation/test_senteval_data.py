"""SentEval's sets from JSONL, from SentEval's own files and from their archive; faults name file
and line.
"""

import json
import tarfile

import pytest
from conftest import make_labelled, make_pairs, write_rows

from st_jtcse.errors import DataUnavailable, UserError
from st_jtcse.papers.evaluation import senteval_files
from st_jtcse.papers.evaluation.senteval_data import load_sts, load_transfer

pytestmark = pytest.mark.usefixtures("offline")

FILES = {
    **{
        f"STS/STS12-en-test/STS.{kind}.{subset}.txt": text
        for subset in ("MSRpar", "MSRvid", "SMTeuroparl", "surprise.OnWN", "surprise.SMTnews")
        for kind, text in (
            ("input", f"a dog  runs\tthe cat {subset}\nno score\tnone\none man\ttwo men\n"),
            ("gs", "4.5\n\n1\n"),
        )
    },
    "STS/STSBenchmark/sts-test.csv": (
        "main\timages\t2012\t1\t2.500\tA girl sits.\tA girl stands.\n"
        'main\timages\t2012\t2\t3.6\tHe said "no.\tHe said no.\tlicence\n'
    ),
    "SICK/SICK_test_annotated.txt": (
        "pair_ID\tsentence_A\tsentence_B\trelatedness_score\tentailment_judgment\n"
        "6\tNo boy runs\tA boy runs\t3.3\tCONTRADICTION\n7\tA dog eats\tA dog is "
        "eating\t4.9\tENTAILMENT\n"
    ),
    "MR/rt-polarity.pos": "very good .\n\xe9lan .\n",
    "MR/rt-polarity.neg": "not  good .\n",
    "SST/binary/sentiment-train": "a tab\there\t1\nbad\t0\n",
    "SST/binary/sentiment-dev": "so so\t0\n",
    "SST/binary/sentiment-test": "fine\t1\n",
    "TREC/train_5500.label": "NUM:dist How far is it : near or not ?\nDESC:manner How ?\n",
    "TREC/TREC_10.label": "LOC:other Where ?\n",
    "MRPC/msr_paraphrase_train.txt": "\ufeffQuality\t#1 ID\t#2 ID\t#1 String\t#2 "
    "String\n1\t7\t8\tOne man\tA man\n",
    "MRPC/msr_paraphrase_test.txt": "Quality\t#1 ID\t#2 ID\t#1 String\t#2 String\n0\t7\t8\tOne "
    "man\tNo man\n",
}


@pytest.fixture
def senteval(tmp_path):
    for path, text in FILES.items():
        file = tmp_path / "senteval" / "downstream" / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(text.encode("latin-1" if path.startswith("MR/") else "utf-8"))
    return tmp_path / "senteval"


def test_jsonl_pairs_keep_their_subsets(evaluation_data):
    found = load_sts("STS12", evaluation_data)
    assert {name: len(scores) for name, (_, _, scores) in found.content.items()} == {
        "MSRpar": 20,
        "OnWN": 12,
    }
    assert list(load_sts("STSB", evaluation_data).content) == ["stsb"]
    assert found.source.endswith("sts12.test.jsonl")


def test_jsonl_transfer_sets_keep_their_splits(evaluation_data):
    assert {
        split: len(rows.labels)
        for split, rows in load_transfer("TREC", evaluation_data).content.items()
    } == {
        "train": 60,
        "test": 18,
    }
    assert len(load_transfer("MRPC", evaluation_data).content["train"].columns) == 2
    assert list(load_transfer("CR", evaluation_data).content) == ["all"]


def test_senteval_s_own_pairs_are_read(senteval):
    subsets = load_sts("STS12", senteval).content
    assert list(subsets) == ["MSRpar", "MSRvid", "SMTeuroparl", "surprise.OnWN", "surprise.SMTnews"]
    assert subsets["MSRpar"] == (
        ["a dog runs", "one man"],
        ["the cat MSRpar", "two men"],
        [4.5, 1.0],
    )
    expected = ["A girl sits.", 'He said "no.'], ["A girl stands.", "He said no."], [2.5, 3.6]
    assert load_sts("STSB", senteval).content == {"STSB": expected}
    assert load_sts("SICKR", senteval).content["SICKR"][2] == [3.3, 4.9]


def test_senteval_s_own_labels_are_read(senteval):
    mr = load_transfer("MR", senteval / "downstream").content["all"]
    assert (mr.columns[0], mr.labels) == (["very good .", "\xe9lan .", "not good ."], [1, 1, 0])
    sst = load_transfer("SST2", senteval).content
    assert (sst["train"].columns[0], sst["train"].labels) == (["a tab here", "bad"], [1, 0])
    trec = load_transfer("TREC", senteval).content
    assert trec["train"].columns[0] == ["How far is it : near or not ?", "How ?"]
    assert (trec["train"].labels, trec["test"].labels) == (["NUM", "DESC"], ["LOC"])
    mrpc = load_transfer("MRPC", senteval).content
    assert (mrpc["train"].columns, mrpc["train"].labels) == ((["One man"], ["A man"]), [1])


def test_the_archive_reads_as_its_folder_does(senteval, tmp_path):
    with tarfile.open(tmp_path / "senteval.tar", "w") as archive:
        archive.add(senteval / "downstream", arcname="./downstream")
    from_folder = senteval_files.from_folder(senteval)
    from_archive = senteval_files.from_archive(tmp_path / "senteval.tar")
    for name in ("STS12", "STSB", "SICKR"):
        assert (
            senteval_files.read_sts(name, from_archive)
            == senteval_files.read_sts(name, from_folder)
            is not None
        )
    for name in ("MR", "SST2", "TREC", "MRPC"):
        found = senteval_files.read_transfer(name, from_archive)
        assert found == senteval_files.read_transfer(name, from_folder) is not None
    assert senteval_files.read_sts("STS13", from_archive) is None


def test_a_set_that_is_nowhere_is_named_as_unavailable(tmp_path):
    with pytest.raises(
        DataUnavailable, match=r"senteval\.tar of princeton-nlp/datasets-for-simcse cannot be had"
    ):
        load_sts("STS13", tmp_path)
    with pytest.raises(DataUnavailable, match="cannot be had from the Hub"):
        load_transfer("MR", None)


def test_the_hash_follows_the_rows(tmp_path):
    pairs = make_pairs(10, 1)
    write_rows(tmp_path / "sts" / "stsb.test.jsonl", pairs)
    before = load_sts("STSB", tmp_path).sha256
    assert load_sts("STSB", tmp_path).sha256 == before
    pairs[3]["score"] = (pairs[3]["score"] + 1) % 5
    write_rows(tmp_path / "sts" / "stsb.test.jsonl", pairs)
    assert load_sts("STSB", tmp_path).sha256 != before


PAIR = {"sentence1": "a", "sentence2": "b", "score": 1.0}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"score": "high"},
            r"stsb\.test\.jsonl:2: expected a score of 0 to 5 in 'score', found 'high'",
        ),
        ({"score": 5.5}, "found 5.5"),
        ({"score": None}, "found None"),
        ({"score": float("nan")}, "found nan"),
        ({"sentence2": ""}, "'sentence2' is empty"),
        ({"subset": 3}, "expected a name in 'subset', found 3"),
    ],
)
def test_a_faulty_pair_is_told_with_its_line(tmp_path, change, message):
    write_rows(tmp_path / "sts" / "stsb.test.jsonl", [{**PAIR, "score": 2.0}, {**PAIR, **change}])
    with pytest.raises(UserError, match=message):
        load_sts("STSB", tmp_path)


def test_missing_columns_are_told(tmp_path):
    write_rows(tmp_path / "sts" / "stsb.test.jsonl", [{"sentence1": "a", "text": "b", "score": 1}])
    with pytest.raises(
        UserError, match=r"expected the columns sentence1, sentence2, score, .* add 'sentence2'\.$"
    ):
        load_sts("STSB", tmp_path)
    write_rows(tmp_path / "transfer" / "cr.jsonl", [{"sentence": "a", "label": 1}])
    with pytest.raises(UserError, match=r"cr\.jsonl:1: expected the columns text, label"):
        load_transfer("CR", tmp_path)


def test_equal_scores_are_refused(tmp_path):
    write_rows(tmp_path / "sts" / "stsb.test.jsonl", [PAIR, PAIR])
    with pytest.raises(UserError, match="the scores of 'stsb' are all equal"):
        load_sts("STSB", tmp_path)


@pytest.mark.parametrize(
    ("name", "label", "message"),
    [
        ("cr", 2, "expected 0 or 1 in 'label', found 2"),
        ("cr", "1", "expected 0 or 1 in 'label', found '1'"),
        ("cr", True, "expected 0 or 1 in 'label', found True"),
        ("cr", None, "found None"),
        ("trec", 1.5, "expected a class, as text or a whole number"),
        ("trec", 3, "expected a class of the same kind as 'NUM'"),
    ],
)
def test_a_label_of_the_wrong_kind_is_told(tmp_path, name, label, message):
    rows = make_labelled(4, 1, ("NUM", "LOC") if name == "trec" else (0, 1))
    rows[2]["label"] = label
    for file in [f"{name}.jsonl"] if name == "cr" else ["trec.train.jsonl", "trec.test.jsonl"]:
        write_rows(tmp_path / "transfer" / file, rows)
    with pytest.raises(UserError, match=message) as refusal:
        load_transfer(name.upper(), tmp_path)
    assert ":3: " in str(refusal.value)


def test_a_split_without_the_other_is_refused(tmp_path):
    write_rows(tmp_path / "transfer" / "trec.train.jsonl", make_labelled(4, 1))
    with pytest.raises(
        UserError, match=r"trec\.test\.jsonl does not exist, but trec\.train\.jsonl does"
    ):
        load_transfer("TREC", tmp_path)


def test_what_is_no_json_is_told(tmp_path):
    path = tmp_path / "sts" / "stsb.test.jsonl"
    path.parent.mkdir()
    path.write_text(json.dumps(PAIR) + "\nno json\n")
    with pytest.raises(UserError, match=r":2: expected a JSON object, found 'no json'"):
        load_sts("STSB", tmp_path)
