"""Parses SentEval's own files: a folder of them, or the archive that SimCSE's authors keep on the Hub."""

from __future__ import annotations

import tarfile
from collections.abc import Callable
from pathlib import Path

from st_jtcse.evaluation.jobs import DataUnavailable
from st_jtcse.evaluation.senteval_transfer import LabelledTexts

REPOSITORY, ARCHIVE = "princeton-nlp/datasets-for-simcse", "senteval.tar"

# From a file's path below SentEval's folder to its bytes; None if there is no such file.
Read = Callable[[str], bytes | None]
Rows = list[tuple[str, str, float]]

STS_SUBSETS = {
    "STS12": ("MSRpar", "MSRvid", "SMTeuroparl", "surprise.OnWN", "surprise.SMTnews"),
    "STS13": ("FNWN", "headlines", "OnWN"),
    "STS14": ("deft-forum", "deft-news", "headlines", "images", "OnWN", "tweet-news"),
    "STS15": ("answers-forums", "answers-students", "belief", "headlines", "images"),
    "STS16": ("answer-answer", "headlines", "plagiarism", "postediting", "question-question"),
}
_STSB, _SICKR = "STS/STSBenchmark/sts-test.csv", "SICK/SICK_test_annotated.txt"
# Files of the class 1, then of the class 0.
_BINARY = {
    "MR": ("MR/rt-polarity.pos", "MR/rt-polarity.neg"),
    "CR": ("CR/custrev.pos", "CR/custrev.neg"),
    "SUBJ": ("SUBJ/subj.objective", "SUBJ/subj.subjective"),
    "MPQA": ("MPQA/mpqa.pos", "MPQA/mpqa.neg"),
}
_SPLITS = {
    "SST2": {split: f"SST/binary/sentiment-{split}" for split in ("train", "dev", "test")},
    "TREC": {"train": "TREC/train_5500.label", "test": "TREC/TREC_10.label"},
    "MRPC": {split: f"MRPC/msr_paraphrase_{split}.txt" for split in ("train", "test")},
}


def from_folder(folder: Path) -> Read:
    """Read below a folder or its ``downstream``, as SentEval names them.

    Args:
        folder: SentEval's ``data`` or ``data/downstream``.
    """

    def read(path: str) -> bytes | None:
        for place in (folder / "downstream" / path, folder / path):
            if place.is_file():
                return place.read_bytes()
        return None

    return read


def from_archive(archive: Path) -> Read:
    """Read members of a tar archive, in whatever folder of it they lie; nothing is unpacked."""

    def read(path: str) -> bytes | None:
        with tarfile.open(archive) as members:
            for member in members:
                if member.isfile() and f"/{member.name}".endswith(f"/{path}"):
                    file = members.extractfile(member)
                    return None if file is None else file.read()
        return None

    return read


def from_hub() -> Read:
    """Read from the archive on the Hub, downloaded once.

    Raises:
        DataUnavailable: The Hub cannot be reached.
    """
    from huggingface_hub import hf_hub_download

    try:
        archive = hf_hub_download(REPOSITORY, ARCHIVE, repo_type="dataset")
    except OSError as error:
        raise DataUnavailable(
            f"it is in no local folder, and {ARCHIVE} of {REPOSITORY} cannot be had from the Hub"
        ) from error
    return from_archive(Path(archive))


def read_sts(name: str, read: Read) -> dict[str, Rows] | None:
    """Return a set's pairs by subset; None if a file of it is missing."""
    if name in STS_SUBSETS:
        subsets = {}
        for subset in STS_SUBSETS[name]:
            stem = f"STS/{name}-en-test/STS"
            pairs, gold = read(f"{stem}.input.{subset}.txt"), read(f"{stem}.gs.{subset}.txt")
            if pairs is None or gold is None:
                return None
            cells = zip(_lines(pairs, keep_empty=True), _lines(gold, keep_empty=True))
            # Pairs without a score are those that the organisers did not have graded.
            subsets[subset] = [(*_pair(line.split("\t")[:2]), float(score)) for line, score in cells if score.strip()]
        return subsets
    content = read(_STSB if name == "STSB" else _SICKR)
    if content is None:
        return None
    cells_of = [line.split("\t") for line in _lines(content)]
    if name == "STSB":
        return {name: [(*_pair(cells[5:7]), float(cells[4])) for cells in cells_of]}
    return {name: [(*_pair(cells[1:3]), float(cells[3])) for cells in cells_of[1:]]}


def read_transfer(name: str, read: Read) -> dict[str, LabelledTexts] | None:
    """Return a set's rows by split; None if a file of it is missing."""
    if name in _BINARY:
        contents = [read(path) for path in _BINARY[name]]
        if None in contents:
            return None
        texts, labels = [], []
        for label, content in zip((1, 0), contents):
            lines = [_text(line) for line in _lines(content or b"")]
            texts += lines
            labels += [label] * len(lines)
        return {"all": LabelledTexts((texts,), labels)}
    splits = {}
    for split, path in _SPLITS[name].items():
        content = read(path)
        if content is None:
            return None
        splits[split] = _PARSERS[name](_lines(content))
    return splits


def _sst(lines: list[str]) -> LabelledTexts:
    cells = [line.rsplit("\t", 1) for line in lines]
    return LabelledTexts(([_text(text) for text, _ in cells],), [int(label) for _, label in cells])


def _trec(lines: list[str]) -> LabelledTexts:
    # "NUM:dist How far is it ...": the coarse class counts.
    cells = [line.split(" ", 1) for line in lines]
    return LabelledTexts(([_text(text) for _, text in cells],), [label.split(":")[0] for label, _ in cells])


def _mrpc(lines: list[str]) -> LabelledTexts:
    cells = [line.split("\t") for line in lines[1:]]
    columns = tuple([_text(row[column]) for row in cells] for column in (3, 4))
    return LabelledTexts(columns, [int(row[0]) for row in cells])


_PARSERS = {"SST2": _sst, "TREC": _trec, "MRPC": _mrpc}


def _lines(content: bytes, *, keep_empty: bool = False) -> list[str]:
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError:
        text = content.decode("latin-1")
    # Not splitlines(), which also cuts at characters that occur inside these texts.
    lines = [line.rstrip("\r") for line in text.removesuffix("\n").split("\n")]
    return lines if keep_empty else [line for line in lines if line.strip()]


def _pair(cells: list[str]) -> tuple[str, str]:
    return _text(cells[0]), _text(cells[1])


def _text(text: str) -> str:
    # SentEval joins the words of a line with one space, and encodes a full stop for an empty line.
    return " ".join(text.split()) or "."
