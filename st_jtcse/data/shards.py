"""Columns computed from sentences once: in shards, resumable, over processes and over commands that
share no more than the disk, and kept as one Arrow file.
"""

from __future__ import annotations

import hashlib
import json
import logging
import shutil
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import pyarrow as pa
from datasets import Dataset
from datasets.utils import tqdm

from st_jtcse import processes
from st_jtcse.data.arrow_files import (
    claim_partial,
    is_whole,
    remove_working_folder,
    working_folder,
    write_stream,
    write_whole,
)
from st_jtcse.errors import UserError
from st_jtcse.hashing import sha256

logger = logging.getLogger(__name__)

Result = TypeVar("Result")


@dataclass(frozen=True)
class Computation:
    """Columns to compute from every sentence."""

    kind: str  # what they are, in one word; the file's name starts with it
    # All that decides the result, as JSON: hashes of sentences and models, and the options.
    settings: dict[str, Any]
    sentences: Dataset  # with a column `sentence`
    # A shard's sentences to its columns, row by row, and from nothing else.
    compute: Callable[[Any], pa.Table]
    # Sentences a shard: what an interruption loses at most, in each process.
    shard_size: int
    # Whether `compute` is given the rows' numbers in place of the sentences.
    by_rows: bool = False
    # What a sentence's columns take on the disk, where that is known beforehand.
    row_bytes: int = 0

    @property
    def text(self) -> str:
        """The settings as stored in the file."""
        rows = {"rows": len(self.sentences), "shard_size": self.shard_size}
        return json.dumps(self.settings | rows, sort_keys=True, ensure_ascii=False)

    @property
    def shards(self) -> list[range]:
        """Row numbers of each shard."""
        rows = range(len(self.sentences))
        return [rows[start : start + self.shard_size] for start in rows[:: self.shard_size]]


class SharesMissing(Exception):
    """Other shares have still to compute shards of theirs, so that there is no file yet."""


@dataclass
class Share:
    """One of several shares of all shards, each computed by a command of its own."""

    number: int  # from 1
    count: int
    # Each file that was asked for: what it is of how many sentences, and how many of these are left
    # to other shares.
    files: dict[Path, tuple[str, int, int]] = field(default_factory=dict)


_SHARE: ContextVar[Share | None] = ContextVar("share", default=None)


@contextmanager
def in_share(number: int, count: int) -> Iterator[Share]:
    """Compute one share of the shards of every file; where others lack, SharesMissing is raised."""
    share = Share(number, count)
    before = _SHARE.set(share)
    try:
        yield share
    finally:
        _SHARE.reset(before)


def all_of(steps: Iterable[Callable[[], Result]]) -> list[Result]:
    """Return what each step computes; SharesMissing is raised when each has computed its share."""
    found, missing = [], None
    for step in steps:
        try:
            found.append(step())
        except SharesMissing as error:
            missing = error
    if missing is not None:
        raise missing
    return found


def finished_file(job: Computation, cache_dir: Path) -> Path | None:
    """Return the file of a job's columns, if it is whole."""
    final = _file_of(job, cache_dir)
    return final if is_whole(final, job.text) else None


def cached_columns(job: Computation, cache_dir: Path) -> Dataset:
    """Return a job's columns, memory-mapped, a row a sentence; what an earlier or interrupted run
    has computed is used.

    In a distributed run every process computes its share of the shards. The file is the same, byte
    for byte, however often the work was interrupted and however many processes shared it. Of
    several runs at once the first to finish wins, and the others take its file. UserError where
    `cache_dir`, which is safe to delete, cannot be written or has too little space, or a file in it
    was made with other settings; SharesMissing as :func:`in_share` says.
    """
    final = _file_of(job, cache_dir)
    folder = final.with_suffix(".shards")
    found = is_whole(final, job.text)
    for step in (_compute, _join):
        try:
            if not found:
                step(job, folder, final)
        except (FileNotFoundError, UserError):
            # Another run may have joined the shards, and removed them.
            if not is_whole(final, job.text):
                raise
        # All processes wait, for another run's file may have come between their looks at it.
        processes.wait_for_all()
        _check_shares(job, folder, final)
    if processes.rank() == 0:
        # Also what a run left that was killed between its two last steps.
        for path in folder.glob("*-*.arrow"):
            if _fits_its_name(path):
                path.unlink(missing_ok=True)
        remove_working_folder(folder)
    return Dataset.from_file(str(final))


def _file_of(job: Computation, cache_dir: Path) -> Path:
    return cache_dir / f"{job.kind}-{hashlib.sha256(job.text.encode()).hexdigest()[:16]}.arrow"


def _check_shares(job: Computation, folder: Path, final: Path) -> None:
    """Raise SharesMissing, in all processes alike, where other shares have not done theirs."""
    share = _SHARE.get()
    if share is None:
        return
    # By their names alone: what they hold is checked when they are joined.
    known = {path.name.partition("-")[0] for path in folder.glob("*-*.arrow")}
    left = sum(len(rows) for at, rows in enumerate(job.shards) if f"{at:05d}" not in known)
    # Asked last: who joins the shards removes them when the file is there.
    left = 0 if is_whole(final, job.text) else left
    share.files[final] = (job.kind, len(job.sentences), left)
    if processes.in_any(left > 0):
        raise SharesMissing


def _own_shards(job: Computation) -> list[tuple[int, range]]:
    """Return the shards that this process computes, with their numbers."""
    first, every = processes.rank(), processes.count()
    if share := _SHARE.get():
        first, every = first + (share.number - 1) * every, share.count * every
    return list(enumerate(job.shards))[first::every]


def _compute(job: Computation, folder: Path, final: Path) -> None:
    own = _own_shards(job)
    left = [(shard, rows) for shard, rows in own if not _finished_shard(folder, shard)]
    total = sum(len(rows) for _, rows in own)
    to_do = sum(len(rows) for _, rows in left)
    _check_space(job, folder.parent, to_do * processes.count())
    working_folder(final)
    if to_do:
        logger.info(
            "%s: computing %d of %d sentences, kept in %s", job.kind, to_do, total, folder.parent
        )
    bar = {
        "desc": job.kind,
        "unit": " sentences",
        "file": sys.stdout,
        "disable": processes.rank() > 0,
    }
    with tqdm(initial=total - to_do, total=total, **bar) as progress:
        for shard, rows in left:
            table = job.compute(rows if job.by_rows else job.sentences[rows]["sentence"])
            # The file of another process, or of one that was killed, must not be in the way.
            partial = claim_partial(folder, f"{shard:05d}")
            write_stream(partial, folder.parent, table.schema, table.combine_chunks().to_batches())
            # The name holds the hash: one rename makes the shard finished, and its content can be
            # checked ever after.
            partial.replace(folder / f"{shard:05d}-{sha256(partial)[:16]}.arrow")
            progress.update(len(rows))
            logger.debug("%s: shard %d of %d is done", job.kind, shard + 1, len(job.shards))


def _check_space(job: Computation, cache_dir: Path, to_do: int) -> None:
    """Refuse a disk that is too small for the shards to be computed and for the file that they are
    joined to.
    """
    needed = job.row_bytes * (len(job.sentences) + to_do)
    free = shutil.disk_usage(
        next(place for place in (cache_dir, *cache_dir.parents) if place.exists())
    ).free
    if needed > free:
        raise UserError(
            f"{cache_dir}: the {job.kind} data of {len(job.sentences)} sentences need "
            f"{needed / 1e6:,.2f} MB while they are made, found {free / 1e6:,.2f} MB free; free "
            "some, or choose another cache_dir."
        )


def _finished_shard(folder: Path, shard: int) -> Path | None:
    """Return a shard's file if its content is what its name says."""
    for path in folder.glob(f"{shard:05d}-*.arrow"):
        if _fits_its_name(path):
            return path
        logger.warning("%s is damaged; computing it again", path)
    return None


def _fits_its_name(path: Path) -> bool:
    return path.is_file() and sha256(path)[:16] == path.stem.split("-")[1]


def _join(job: Computation, folder: Path, final: Path) -> None:
    if processes.rank() > 0 or is_whole(final, job.text):
        return
    shards = range(len(job.shards))
    paths = [path for shard in shards if (path := _finished_shard(folder, shard))]
    if len(paths) < len(job.shards):
        raise UserError(
            f"{folder}: a shard was damaged while others were computed; run again to repair it."
        )

    def batches() -> Iterator[pa.RecordBatch]:
        for path in paths:
            with pa.memory_map(str(path)) as source:
                yield from pa.ipc.open_stream(source)

    with pa.ipc.open_stream(str(paths[0])) as first:
        schema = first.schema
    partial = claim_partial(folder, "joined")
    write_whole(partial, final, job.text, schema, batches())
