"""Rows of about one length share a batch: all of them once an epoch, in another order each, also in
a resumed run.
"""

import json
from itertools import chain

import pytest
import torch
from conftest import make_sentences
from datasets import Dataset
from test_streaming import project, train  # noqa: F401  # project is a fixture

from st_jtcse.errors import UserError
from st_jtcse.training.callbacks import Interrupt
from st_jtcse.training.length_groups import LengthGroupedBatchSampler

GROUPED = {"train_sampling_strategy": "group_by_length"}


def sampler_of(lengths, **settings):
    rows = Dataset.from_dict(
        {"sentence": ["é" * length for length in lengths], "label": [[0.5]] * len(lengths)}
    )
    return LengthGroupedBatchSampler(rows, 8, seed=3, **{"drop_last": False} | settings)


def test_batches_hold_every_row_once_and_hardly_any_padding():
    lengths = torch.randint(3, 60, (1003,), generator=torch.Generator().manual_seed(0)).tolist()
    sampler = sampler_of(lengths)
    first, again = list(sampler), list(sampler)
    sampler.set_epoch(1)
    second = list(sampler)
    assert first == again != second and len(first) == len(sampler) == 126
    assert sorted(chain(*first)) == sorted(chain(*second)) == list(range(1003))
    for batches in (first, second):
        longest = [max(lengths[row] for row in batch) for batch in batches]
        padded = sum(most * len(batch) for most, batch in zip(longest, batches))
        # Rows in any order have 1.77 times their own length.
        assert sum(lengths) <= padded < 1.1 * sum(lengths)
        # The batches themselves come in no order.
        assert (
            abs(torch.corrcoef(torch.tensor([longest, range(126)], dtype=torch.float))[0, 1]) < 0.3
        )


def test_a_last_smaller_batch_is_left_out_where_it_was_asked_for():
    assert sorted(map(len, sampler_of(range(20)))) == [4, 8, 8]
    assert sorted(map(len, sampler_of(range(20), drop_last=True))) == [8, 8]


def test_rows_without_text_are_refused():
    with pytest.raises(UserError, match="needs rows with texts"):
        LengthGroupedBatchSampler(Dataset.from_dict({"sentence": [1, 2]}), 2, drop_last=False)


def test_a_resumed_stage_has_the_batches_of_a_straight_one(project, monkeypatch):  # noqa: F811
    """The stop is in the second of two epochs of five batches."""
    (project / "text.txt").write_text("\n".join(make_sentences(40)))
    data = {"train": str(project / "text.txt")}
    hashes = {}
    for folder, args in (("straight", GROUPED), ("random", {})):
        assert train(project, "--output-dir", str(project / folder), data=data, args=args) == 0
    step_ends = Interrupt.on_step_end

    def stop(self, args, state, control, **more):
        self.requested = state.global_step >= 7
        step_ends(self, args, state, control, **more)

    with monkeypatch.context() as patched:
        patched.setattr(Interrupt, "on_step_end", stop)
        assert train(project, data=data, args=GROUPED) == 130
    assert train(project, "--resume", data=data, args=GROUPED) == 0
    for folder in ("straight", "run", "random"):
        (stage,) = json.loads((project / folder / "results.json").read_text())["stages"]
        hashes[folder] = stage["weights_sha256"]
    assert hashes["run"] == hashes["straight"] != hashes["random"]


@pytest.mark.parametrize(
    "args",
    [{"train_sampling_strategy": "sequential"}, GROUPED | {"batch_sampler": "no_duplicates"}],
)
def test_what_the_trainer_would_ignore_is_refused(project, capsys, args):  # noqa: F811
    (project / "text.txt").write_text("\n".join(make_sentences(40)))
    assert train(project, data={"train": str(project / "text.txt")}, args=args) == 2
    told = " ".join(capsys.readouterr().err.split())
    assert (
        "Stage 'one': " in told
        and "args.train_sampling_strategy" in told
        and "batch_sampler" in told
    )
    assert not (project / "run").exists()
