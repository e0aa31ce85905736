"""What goes on beside a training loop, and that none of it asks an accelerator anything between two
log entries.
"""

import sys
from collections import Counter

import pytest
import torch
from conftest import make_model, make_pipeline, make_sentences, training_arguments
from datasets import Dataset
from sentence_transformers import SentenceTransformerTrainer
from torch.utils._python_dispatch import TorchDispatchMode

from st_jtcse.losses import JTCSELoss, LSRNSLoss, RankCSELoss, SimCSELoss
from st_jtcse.training.callbacks import FiniteLoss

ASKS = {
    torch.ops.aten._local_scalar_dense.default,
    torch.ops.aten.nonzero.default,
    torch.ops.aten.masked_select.default,
}
LIBRARIES = {"transformers", "sentence_transformers", "accelerate", "st_jtcse"}


class Asked(TorchDispatchMode):
    """Counts, by the package that asks, what an accelerator would have to answer before the host
    can go on.
    """

    def __init__(self):
        super().__init__()
        self.by = Counter()

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        indices = args[1] if function is torch.ops.aten.index.Tensor else ()
        if function in ASKS or any(
            index is not None and index.dtype == torch.bool for index in indices
        ):
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
    rows = {"sentence": make_sentences(48)} | (
        {"label": labels} if build in (RankCSELoss, LSRNSLoss) else {}
    )
    loss = build(model, **settings)
    trainer = SentenceTransformerTrainer(
        model,
        args=training_arguments(
            folder,
            max_steps=steps,
            logging_steps=100,
            save_strategy="no",
            logging_nan_inf_filter=False,
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
