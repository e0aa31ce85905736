"""Parses SentEval's own files: a folder of them, or the archive that SimCSE's authors keep on the
Hub.
"""

from __future__ import annotations

import tarfile
from collections.abc import Callable
from pathlib import Path

from st_jtcse.errors import DataUnavailable
from st_jtcse.papers.evaluation.senteval_transfer import LabelledTexts

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
# The files of each split; of the first four sets those of the class 1, then of the class 0.
_TRANSFER: dict[str, dict[str, tuple[str, ...]]] = {
    "MR": {"all": ("MR/rt-polarity.pos", "MR/rt-polarity.neg")},
    "CR": {"all": ("CR/custrev.pos", "CR/custrev.neg")},
    "SUBJ": {"all": ("SUBJ/subj.objective", "SUBJ/subj.subjective")},
    "MPQA": {"all": ("MPQA/mpqa.pos", "MPQA/mpqa.neg")},
    "SST2": {split: (f"SST/binary/sentiment-{split}",) for split in ("train", "dev", "test")},
    "TREC": {"train": ("TREC/train_5500.label",), "test": ("TREC/TREC_10.label",)},
    "MRPC": {split: (f"MRPC/msr_paraphrase_{split}.txt",) for split in ("train", "test")},
}


def from_folder(folder: Path) -> Read:
    """Read below a folder or its ``downstream``: it is SentEval's ``data`` or
    ``data/downstream``.
    """

    def read(path: str) -> bytes | None:
        places = (folder / "downstream" / path, folder / path)
        return next((place.read_bytes() for place in places if place.is_file()), None)

    return read


def from_archive(archive: Path) -> Read:
    """Read members of a tar archive, in whatever folder of it they lie; nothing is unpacked."""

    def read(path: str) -> bytes | None:
        with tarfile.open(archive) as members:
            for member in members:
                if member.isfile() and f"/{member.name}".endswith(f"/{path}"):
                    file = members.extractfile(member)
                    if file is None:
                        return None
                    return file.read()
        return None

    return read


def from_hub() -> Read:
    """Read from the archive on the Hub, downloaded once; raises DataUnavailable where it cannot be
    reached.
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
            subsets[subset] = [
                _pair([*line.split("\t")[:2], score]) for line, score in cells if score.strip()
            ]
        return subsets
    content = read(_STSB if name == "STSB" else _SICKR)
    if content is None:
        return None
    rows = [line.split("\t") for line in _lines(content)]
    if name == "STSB":
        return {name: [_pair([row[5], row[6], row[4]]) for row in rows]}
    return {name: [_pair(row[1:4]) for row in rows[1:]]}


def read_transfer(name: str, read: Read) -> dict[str, LabelledTexts] | None:
    """Return a set's rows by split; None if a file of it is missing."""
    splits = {}
    for split, paths in _TRANSFER[name].items():
        contents = [content for path in paths if (content := read(path)) is not None]
        if len(contents) < len(paths):
            return None
        *columns, labels = zip(*_transfer_rows(name, list(map(_lines, contents))))
        texts = tuple(list(map(_text, column)) for column in columns)
        splits[split] = LabelledTexts(texts, list(labels))
    return splits


def _transfer_rows(name: str, files: list[list[str]]) -> list[tuple[str | int, ...]]:
    """Return the rows of a split's files, a row's label last."""
    rows: list[tuple[str | int, ...]] = []
    if name == "SST2":
        for line in files[0]:
            text, label = line.rsplit("\t", 1)
            rows.append((text, int(label)))
    elif name == "TREC":
        # "NUM:dist How far is it ...": the coarse class counts.
        for line in files[0]:
            label, text = line.split(" ", 1)
            rows.append((text, label.split(":")[0]))
    elif name == "MRPC":
        for line in files[0][1:]:
            cells = line.split("\t")
            rows.append((cells[3], cells[4], int(cells[0])))
    else:
        rows += [(line, 1) for line in files[0]]
        rows += [(line, 0) for line in files[1]]
    return rows


def _lines(content: bytes, *, keep_empty: bool = False) -> list[str]:
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError:
        text = content.decode("latin-1")
    # Not splitlines(), which also cuts at characters that occur inside these texts.
    lines = [line.rstrip("\r") for line in text.removesuffix("\n").split("\n")]
    if keep_empty:
        return lines
    return [line for line in lines if line.strip()]


def _pair(cells: list[str]) -> tuple[str, str, float]:
    return _text(cells[0]), _text(cells[1]), float(cells[2])


def _text(text: str) -> str:
    # SentEval joins the words of a line with one space, and encodes a full stop for an empty line.
    return " ".join(text.split()) or "."
