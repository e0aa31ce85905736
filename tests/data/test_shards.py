import dataclasses
import errno
import hashlib
import itertools
import logging
import os
import shutil

import pyarrow as pa
import pytest
from conftest import make_sentences
from datasets import Dataset

from st_jtcse.data.arrow_files import _first_difference
from st_jtcse.data.shards import Computation, SharesMissing, all_of, cached_columns, in_share
from st_jtcse.errors import UserError
from st_jtcse.ownership import LIST

SENTENCES = make_sentences(10)
SAME = '{"unit": "word"}'


@pytest.fixture
def job():
    """Lengths of sentences, and the shards that were computed."""
    computed = []

    def lengths(texts):
        computed.append(texts)
        return pa.table({"length": [len(text) for text in texts]})

    job = Computation(
        "length",
        {"unit": "character"},
        Dataset.from_dict({"sentence": SENTENCES}),
        lengths,
        shard_size=4,
    )
    return job, computed


def interrupt(job, cache, at):
    """Run until shard `at` raises, as an interruption does."""
    compute = job.compute

    def stop(texts):
        if texts[0] == SENTENCES[job.shards[at].start]:
            raise KeyboardInterrupt
        return compute(texts)

    with pytest.raises(KeyboardInterrupt):
        cached_columns(
            Computation(job.kind, job.settings, job.sentences, stop, job.shard_size), cache
        )
    (shards,) = cache.glob("*.shards")
    return shards


def test_rows_are_in_order_and_computed_once(job, tmp_path):
    job, computed = job
    for _ in range(2):
        assert cached_columns(job, tmp_path)["length"][:] == [len(text) for text in SENTENCES]
    assert [len(texts) for texts in computed] == [4, 4, 2]
    assert [path.suffix for path in tmp_path.iterdir()] == [".arrow"]


@pytest.mark.parametrize("damage", [lambda data: data[:-9], lambda data: data[:-9] + b"x" * 9])
def test_a_truncated_or_altered_shard_is_computed_again(job, tmp_path, damage, caplog):
    job, computed = job
    shards = interrupt(job, tmp_path, at=2)
    broken = sorted(shards.glob("*.arrow"))[0]
    broken.write_bytes(damage(broken.read_bytes()))
    computed.clear()
    with caplog.at_level(logging.WARNING):
        assert cached_columns(job, tmp_path)["length"][:] == [len(text) for text in SENTENCES]
    assert [texts[0] for texts in computed] == [SENTENCES[0], SENTENCES[8]]
    assert f"{broken} is damaged" in caplog.text


def flipped(data, at):
    return data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]


@pytest.mark.parametrize(
    "damage",
    [
        lambda data: data[: len(data) // 2],
        lambda data: data[:-32],  # The Arrow stream alone, as earlier versions wrote it.
        lambda data: data[:9],
        lambda data: b"",
        lambda data: flipped(data, -50),
        lambda data: flipped(data, len(data) // 2),
        lambda data: flipped(data, -1),
        lambda data: data + b"x",
    ],
)
def test_a_truncated_or_altered_file_is_computed_again(job, tmp_path, damage, caplog):
    job, computed = job
    cached_columns(job, tmp_path)
    (path,) = tmp_path.iterdir()
    whole = path.read_bytes()
    path.write_bytes(damage(whole))
    assert cached_columns(job, tmp_path)["length"][:] == [len(text) for text in SENTENCES]
    assert path.read_bytes() == whole and len(computed) == 6
    assert caplog.messages == [f"{path} is damaged, or of an earlier version; computing it again"]


def test_a_file_made_with_other_settings_is_never_used(job, tmp_path):
    job, _ = job
    cached_columns(job, tmp_path)
    (path,) = tmp_path.iterdir()
    other = Computation(job.kind, {"unit": "word"}, job.sentences, job.compute, job.shard_size)
    cached_columns(other, tmp_path)
    (second,) = set(tmp_path.iterdir()) - {path}
    path.replace(second)
    with pytest.raises(
        UserError,
        match=r"made with other settings \(unit: 'character' there, 'word' here\); delete",
    ):
        cached_columns(other, tmp_path)


@pytest.mark.parametrize("content", [b"no table", b""])
def test_a_file_that_fits_its_checksum_and_holds_no_table_is_computed_again(
    job, tmp_path, content, caplog
):
    job, _ = job
    cached_columns(job, tmp_path)
    (path,) = tmp_path.iterdir()
    whole = path.read_bytes()
    path.write_bytes(content + hashlib.sha256(content).digest())
    assert cached_columns(job, tmp_path)["length"][:] == [len(text) for text in SENTENCES]
    assert path.read_bytes() == whole
    assert caplog.messages == [f"{path} holds no table; computing it again"]


@pytest.mark.parametrize("told", ["null", "[]", "{}", "5", "x", SAME])
def test_settings_that_cannot_be_compared_are_told_too(told):
    assert _first_difference(told, SAME) in ("it names none", "unit: None there, 'word' here")


def test_a_full_disk_is_told_and_finished_shards_are_kept(job, tmp_path, monkeypatch):
    job, computed = job
    shards = interrupt(job, tmp_path, at=1)

    def full(descriptor):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with (
        monkeypatch.context() as patch,
        pytest.raises(
            UserError, match="no space is left on the disk: free some, or choose another cache_dir"
        ),
    ):
        patch.setattr("os.fsync", full)
        cached_columns(job, tmp_path)
    assert [path.name[:5] for path in shards.iterdir() if path.name != LIST] == ["00000"]
    computed.clear()
    assert cached_columns(job, tmp_path)["length"][:] == [len(text) for text in SENTENCES]
    assert [len(texts) for texts in computed] == [4, 2]


@pytest.mark.parametrize("number", [errno.EDQUOT, errno.EACCES, errno.EROFS])
def test_a_cache_that_cannot_be_written_is_told(job, tmp_path, monkeypatch, number):
    def refuse(descriptor):
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr("os.fsync", refuse)
    with pytest.raises(UserError) as caught:
        cached_columns(job[0], tmp_path)
    reason = "your quota of the disk is used up: free some space"
    if number != errno.EDQUOT:
        reason = "the folder cannot be written: make it writable"
    assert str(caught.value) == (
        f"{tmp_path}: {reason}, or choose another cache_dir, and run again; finished shards are "
        "kept."
    )


def test_a_cache_that_is_a_file_is_told(job, tmp_path):
    (tmp_path / "cache").write_text("")
    with pytest.raises(
        UserError,
        match=r"cache: a part of this path is a file: move it, or choose another cache_dir",
    ):
        cached_columns(job[0], tmp_path / "cache")


def test_an_error_of_the_computation_is_not_the_caches(job, tmp_path):
    def refuse(texts):
        raise PermissionError(errno.EACCES, "not this cache")

    with pytest.raises(PermissionError, match="not this cache"):
        cached_columns(dataclasses.replace(job[0], compute=refuse), tmp_path)


def test_shards_left_beside_the_finished_file_are_removed(job, tmp_path):
    job, computed = job
    shards = interrupt(job, tmp_path, at=2)
    kept = {path.name: path.read_bytes() for path in shards.iterdir()}
    cached_columns(job, tmp_path)
    # As after a kill between the two.
    shards.mkdir()
    for name, content in kept.items():
        (shards / name).write_bytes(content)
    computed.clear()
    assert cached_columns(job, tmp_path)["length"][:] == [len(text) for text in SENTENCES]
    assert not computed and [path.suffix for path in tmp_path.iterdir()] == [".arrow"]


@pytest.mark.parametrize("remade", [False, True])
@pytest.mark.parametrize("at", [0, 1, 2])
def test_of_two_runs_at_once_the_second_takes_the_file_of_the_first(job, tmp_path, at, remade):
    job, _ = job
    asked = []

    def beside_another(texts):
        asked.append(texts[0])
        if texts[0] == SENTENCES[job.shards[at].start]:
            (shards,) = tmp_path.glob("*.shards")
            cached_columns(job, tmp_path)
            assert not shards.exists()
            if remade:  # As where the first run cannot remove what is being written.
                shards.mkdir()
        return job.compute(texts)

    found = cached_columns(dataclasses.replace(job, compute=beside_another), tmp_path)
    assert found["length"][:] == [len(text) for text in SENTENCES]
    assert [path.suffix for path in tmp_path.iterdir()] == [".arrow"]
    # It asks for no more once its folder is gone.
    assert len(asked) == (3 if remade else at + 1)


def test_a_run_whose_shards_another_has_joined_takes_the_file(job, tmp_path, monkeypatch):
    job, computed = job
    others = iter([lambda: cached_columns(job, tmp_path)])
    monkeypatch.setattr("st_jtcse.processes.wait_for_all", lambda: next(others, lambda: None)())
    assert cached_columns(job, tmp_path)["length"][:] == [len(text) for text in SENTENCES]
    assert len(computed) == 3 and [path.suffix for path in tmp_path.iterdir()] == [".arrow"]


def test_shards_that_vanish_without_a_file_are_an_error(job, tmp_path):
    job, _ = job

    def vanish(texts):
        for shards in tmp_path.glob("*.shards"):
            shutil.rmtree(shards)
        return job.compute(texts)

    with pytest.raises(FileNotFoundError):
        cached_columns(dataclasses.replace(job, compute=vanish), tmp_path)


def share_of(job, cache, number, count):
    """Compute a share; return what it found of the one file, and the sentences left to others."""
    with in_share(number, count) as share:
        try:
            found = cached_columns(job, cache)
        except SharesMissing:
            found = None
    ((_, sentences, left),) = share.files.values()
    assert sentences == len(SENTENCES)
    return found, left


def whole_file(job, folder):
    cached_columns(job, folder)
    (path,) = folder.iterdir()
    return path.read_bytes()


@pytest.mark.parametrize("count", [1, 2, 3])
def test_shares_in_any_order_make_the_file_of_one_run(job, tmp_path, count):
    job, computed = job
    whole = whole_file(job, tmp_path / "whole")
    for order in itertools.permutations(range(1, count + 1)):
        cache = tmp_path / "-".join(map(str, order))
        left = len(SENTENCES)
        for number in order:
            computed.clear()
            found, now = share_of(job, cache, number, count)
            own = [SENTENCES[rows.start : rows.stop] for rows in job.shards[number - 1 :: count]]
            assert computed == own and now == left - sum(map(len, own))
            left = now
            # Nothing looks whole until the last share has joined it.
            assert (found is None) == (number != order[-1])
            assert [path.suffix for path in cache.iterdir()] == [".arrow" if found else ".shards"]
        assert found["length"][:] == [len(text) for text in SENTENCES]
        (path,) = cache.iterdir()
        assert path.read_bytes() == whole


def test_a_share_that_is_repeated_computes_nothing_and_changes_nothing(job, tmp_path):
    job, computed = job
    share_of(job, tmp_path, 2, 3)
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*.arrow")}
    computed.clear()
    assert share_of(job, tmp_path, 2, 3) == (None, 6)
    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*.arrow")} == before
    for number in (1, 3):
        share_of(job, tmp_path, number, 3)
    computed.clear()
    for number in (1, 2, 3):
        found, left = share_of(job, tmp_path, number, 3)
        assert len(found) == len(SENTENCES) and left == 0
    assert not computed and [path.suffix for path in tmp_path.iterdir()] == [".arrow"]


def test_a_share_without_a_shard_says_what_is_left_to_others(job, tmp_path):
    job, computed = job
    assert share_of(job, tmp_path, 4, 4) == (None, len(SENTENCES))
    assert not computed and not list(tmp_path.rglob("*.arrow"))


def test_a_run_joins_shares_that_were_made_in_folders_of_their_own(job, tmp_path):
    job, computed = job
    whole = whole_file(job, tmp_path / "whole")
    for number in (1, 2):
        share_of(job, tmp_path / f"share-{number}", number, 2)
        shutil.copytree(tmp_path / f"share-{number}", tmp_path / "cache", dirs_exist_ok=True)
    computed.clear()
    assert whole_file(job, tmp_path / "cache") == whole and not computed


def test_a_run_computes_what_shares_have_left(job, tmp_path):
    job, computed = job
    whole = whole_file(job, tmp_path / "whole")
    share_of(job, tmp_path / "cache", 2, 3)
    computed.clear()
    assert whole_file(job, tmp_path / "cache") == whole
    assert [texts[0] for texts in computed] == [SENTENCES[0], SENTENCES[8]]


def test_a_share_repairs_its_own_damaged_shard(job, tmp_path):
    job, computed = job
    share_of(job, tmp_path, 1, 2)
    broken = min(tmp_path.glob("*.shards/*.arrow"))
    broken.write_bytes(broken.read_bytes()[:-9])
    with pytest.raises(UserError, match="a shard was damaged while others were computed"):
        share_of(job, tmp_path, 2, 2)
    computed.clear()
    found, _ = share_of(job, tmp_path, 1, 2)
    assert found["length"][:] == [len(text) for text in SENTENCES] and len(computed) == 1


def test_of_several_files_a_share_computes_its_part_of_each(job, tmp_path):
    job, computed = job
    other = dataclasses.replace(job, settings={"unit": "word"})
    steps = [lambda own=own: cached_columns(own, tmp_path)["length"][:] for own in (job, other)]
    with in_share(1, 2) as share, pytest.raises(SharesMissing):
        all_of(steps)
    assert len(share.files) == 2 and len(computed) == 4
    with in_share(2, 2):
        assert all_of(steps) == [[len(text) for text in SENTENCES]] * 2
