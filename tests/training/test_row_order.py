"""The order of a stage's rows is accelerate's, in little memory."""

import tracemalloc

import torch
from accelerate.data_loader import prepare_data_loader
from torch.utils.data import BatchSampler, DataLoader, RandomSampler

from st_jtcse.training.row_order import random_batches


class Rows(list):
    """As many rows as one likes, each its own number, of which none is held."""

    def __init__(self, count):
        self.count = count

    def __getitem__(self, row):
        return row

    def __len__(self):
        return self.count


def loader_of(rows, ours, processes=1):
    batches = BatchSampler(RandomSampler(Rows(rows), generator=torch.Generator()), 1000, False)
    if ours:
        batches = random_batches(Rows(rows), seed=7, batch_size=1000, drop_last=False)
    loader = DataLoader(Rows(rows), batch_sampler=batches, collate_fn=list)
    return prepare_data_loader(
        loader,
        put_on_device=False,
        use_seedable_sampler=True,
        data_seed=7,
        num_processes=processes,
        process_index=processes - 1,
        rng_types=[],
    )


def test_the_order_of_each_epoch_is_accelerates_in_one_process_and_in_two():
    for processes in (1, 2):
        orders = {}
        for ours in (True, False):
            loader = loader_of(9_001, ours, processes)
            for epoch in (0, 1, 5):
                loader.set_epoch(epoch)
                orders[ours, epoch] = [row for batch in loader for row in batch]
        assert all(orders[True, epoch] == orders[False, epoch] for epoch in (0, 1, 5))
        assert orders[True, 0] != orders[True, 1]
        if processes == 1:
            assert sorted(orders[True, 5]) == list(range(9_001))


def test_an_order_takes_no_python_number_for_each_row():
    peaks = []
    for ours in (True, False):
        batches = iter(loader_of(100_000, ours))
        tracemalloc.start()
        next(batches)
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert peaks[0] < 1e6 < 3e6 < peaks[1]
