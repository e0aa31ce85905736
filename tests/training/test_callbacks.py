"""What goes on beside a training loop, and that none of it asks an accelerator anything between two log entries."""

import sys
import tracemalloc
from collections import Counter

import pytest
import torch
from accelerate.data_loader import prepare_data_loader
from conftest import make_model, make_pipeline, make_sentences, training_arguments
from datasets import Dataset
from sentence_transformers import SentenceTransformerTrainer
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.data import BatchSampler, DataLoader, RandomSampler

from st_jtcse.losses import JTCSELoss, LSRNSLoss, RankCSELoss, SimCSELoss
from st_jtcse.training.callbacks import FiniteLoss, RowOrder

ASKS = {
    torch.ops.aten._local_scalar_dense.default,
    torch.ops.aten.nonzero.default,
    torch.ops.aten.masked_select.default,
}
LIBRARIES = {"transformers", "sentence_transformers", "accelerate", "st_jtcse"}


class Asked(TorchDispatchMode):
    """Counts, by the package that asks, what an accelerator would have to answer before the host can go on."""

    def __init__(self):
        super().__init__()
        self.by = Counter()

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        indices = args[1] if function is torch.ops.aten.index.Tensor else ()
        if function in ASKS or any(index is not None and index.dtype == torch.bool for index in indices):
            frame = sys._getframe(1)
            while (name := frame.f_globals.get("__name__", "").partition(".")[0]) not in LIBRARIES:
                frame = frame.f_back
            self.by[name] += 1
        return function(*args, **(kwargs or {}))


@pytest.fixture(scope="module")
def models(tower_folders):
    return {JTCSELoss: make_pipeline(tower_folders), None: make_model(tower_folders[0])}


def asked(models, build, folder, steps, **settings):
    model = models.get(build, models[None])
    labels = torch.nn.functional.normalize(torch.randn(48, 8), dim=1).tolist()
    rows = {"sentence": make_sentences(48)} | ({"label": labels} if build in (RankCSELoss, LSRNSLoss) else {})
    loss = build(model, **settings)
    trainer = SentenceTransformerTrainer(
        model,
        args=training_arguments(
            folder, max_steps=steps, logging_steps=100, save_strategy="no", logging_nan_inf_filter=False
        ),
        train_dataset=Dataset.from_dict(rows),
        loss=loss,
        callbacks=[FiniteLoss("one", loss)],
    )
    with Asked() as counted:
        trainer.train()
    return counted.by


@pytest.mark.parametrize(
    ("build", "settings"),
    [
        (JTCSELoss, {}),
        (JTCSELoss, {"mini_batch_size": 4}),
        (SimCSELoss, {"mini_batch_size": 4}),
        (RankCSELoss, {}),
        (RankCSELoss, {"ranking": "cosent"}),
        (LSRNSLoss, {}),
    ],
)
def test_no_step_between_two_log_entries_waits(models, build, settings, tmp_path):
    few, more = (asked(models, build, tmp_path, steps, **settings) for steps in (2, 6))
    # Four steps more; transformers looks at each mask whether there is padding at all.
    assert more - few == Counter(transformers=(more - few)["transformers"])


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
    loader = prepare_data_loader(loader, put_on_device=False, use_seedable_sampler=True, data_seed=7)
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
