import logging

import pyarrow as pa
import pytest
from conftest import make_sentences
from datasets import Dataset

from st_jtcse.data.shards import Job, cached_columns
from st_jtcse.errors import UserError

SENTENCES = make_sentences(10)


@pytest.fixture
def job():
    """Lengths of sentences, and the shards that were computed."""
    computed = []

    def lengths(texts):
        computed.append(texts)
        return pa.table({"length": [len(text) for text in texts]})

    job = Job("length", {"unit": "character"}, Dataset.from_dict({"sentence": SENTENCES}), lengths, shard_size=4)
    return job, computed


def interrupt(job, cache, at):
    """Run until shard `at` raises, as an interruption does."""
    compute = job.compute

    def stop(texts):
        if texts[0] == SENTENCES[job.rows(at).start]:
            raise KeyboardInterrupt
        return compute(texts)

    with pytest.raises(KeyboardInterrupt):
        cached_columns(Job(job.kind, job.settings, job.sentences, stop, job.shard_size), cache)
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


def test_a_truncated_file_is_computed_again(job, tmp_path):
    job, computed = job
    cached_columns(job, tmp_path)
    (path,) = tmp_path.iterdir()
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    cached_columns(job, tmp_path)
    assert path.read_bytes() == whole and len(computed) == 6


def test_a_file_made_with_other_settings_is_never_used(job, tmp_path):
    job, _ = job
    cached_columns(job, tmp_path)
    (path,) = tmp_path.iterdir()
    other = Job(job.kind, {"unit": "word"}, job.sentences, job.compute, job.shard_size)
    cached_columns(other, tmp_path)
    (second,) = set(tmp_path.iterdir()) - {path}
    path.replace(second)
    with pytest.raises(UserError, match=r"made with other settings \(unit: 'character' there, 'word' here\); delete"):
        cached_columns(other, tmp_path)


def test_a_full_disk_is_told_and_finished_shards_are_kept(job, tmp_path, monkeypatch):
    job, computed = job
    shards = interrupt(job, tmp_path, at=1)
    # Writing to this device fails as writing to a full disk does.
    monkeypatch.setattr("os.getpid", lambda: 7)
    (shards / ".00001.7.partial").symlink_to("/dev/full")
    with pytest.raises(UserError, match="no space left on the disk; finished shards are kept"):
        cached_columns(job, tmp_path)
    assert [path.name[:5] for path in shards.iterdir()] == ["00000"]
    computed.clear()
    assert cached_columns(job, tmp_path)["length"][:] == [len(text) for text in SENTENCES]
    assert [len(texts) for texts in computed] == [4, 2]
