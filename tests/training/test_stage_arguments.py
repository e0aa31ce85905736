"""A stage's arguments, completed by what follows from it, and the order of its rows, which is
accelerate's, in little memory.
"""

import tracemalloc

import pytest
import torch
from accelerate.data_loader import prepare_data_loader
from torch.utils.data import BatchSampler, DataLoader, RandomSampler

from st_jtcse.recipe.schema import StageSpec
from st_jtcse.training.stage_arguments import RowOrder, training_arguments


def arguments_of(folder, **args):
    model, loss = {"base": "embedded"}, {"type": "SimCSELoss"}
    stage = StageSpec.model_validate({"name": "one", "model": model, "loss": loss, "args": args})
    return training_arguments(stage, 1, folder)


@pytest.mark.parametrize("given", [None, "none", []])
def test_reports_go_nowhere_unless_a_place_is_named(tmp_path, given):
    assert arguments_of(tmp_path, report_to=given).report_to == []


@pytest.mark.parametrize(
    ("given", "every"),
    [
        ({"eval_steps": 5}, 5),
        ({"eval_steps": 5, "logging_steps": 2}, 5),
        ({"logging_steps": 2}, 2),
        ({"eval_steps": None, "logging_steps": 2}, 2),
        ({"eval_steps": None}, 500),
    ],
)
def test_each_evaluation_has_its_checkpoint(tmp_path, given, every):
    found = arguments_of(tmp_path, eval_strategy="steps", **given)
    assert (found.eval_steps, found.save_steps) == (every, every)


class Rows(list):
    """As many rows as one likes, each its own number, of which none is held."""

    def __init__(self, count):
        self.count = count

    def __getitem__(self, row):
        return row

    def __len__(self):
        return self.count


def loader_of(rows, lean):
    sampler = BatchSampler(RandomSampler(Rows(rows), generator=torch.Generator()), 1000, False)
    loader = DataLoader(Rows(rows), batch_sampler=sampler, collate_fn=list)
    loader = prepare_data_loader(
        loader, put_on_device=False, use_seedable_sampler=True, data_seed=7
    )
    if lean:
        RowOrder().on_train_begin(None, None, None, train_dataloader=loader)
    return loader


def test_the_lean_order_of_each_epoch_is_accelerates():
    orders = {}
    for lean in (True, False):
        loader = loader_of(9_001, lean)
        for epoch in (0, 1, 5):
            loader.set_epoch(epoch)
            orders[lean, epoch] = [row for batch in loader for row in batch]
    assert all(orders[True, epoch] == orders[False, epoch] for epoch in (0, 1, 5))
    assert orders[True, 0] != orders[True, 1] and sorted(orders[True, 5]) == list(range(9_001))


def test_an_order_takes_no_python_number_for_each_row():
    peaks = []
    for lean in (True, False):
        batches = iter(loader_of(100_000, lean))
        tracemalloc.start()
        next(batches)
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert peaks[0] < 1e6 < 3e6 < peaks[1]
