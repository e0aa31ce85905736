"""Sentence-Transformers' other models train after `import st_jtcse` as they do without it."""

import json

import pytest
import torch
from conftest import make_config, make_tokenizer, save_encoder
from processes import run_code
from transformers import BertForMaskedLM

import st_jtcse.losses
import st_jtcse.modules  # noqa: F401

SCRIPT = """
from pathlib import Path

import torch
from datasets import Dataset
from sentence_transformers.{package} import {model}, {model}Trainer, {model}TrainingArguments
from sentence_transformers.{package}.losses import {losses}
{setup}
data = Dataset.from_dict(json.loads(Path(place, "rows.json").read_text()))
arguments = {model}TrainingArguments(
    output_dir=place + "/run", max_steps=2, per_device_train_batch_size=4, report_to="none", disable_tqdm=True,
    use_cpu=True, logging_steps=1, seed=1, save_strategy="no", learning_rate=1e-3,
)
before = [parameter.clone() for parameter in model.parameters()]
trainer = {model}Trainer(model, args=arguments, train_dataset=data, loss=loss)
trainer.train()
moved = sum(not torch.equal(p, q) for p, q in zip(model.parameters(), before))
assert moved > len(before) / 2, moved
losses[place] = [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]
"""
SPARSE = dict(
    package="sparse_encoder",
    model="SparseEncoder",
    losses="SpladeLoss, SparseMultipleNegativesRankingLoss",
    setup="""
from sentence_transformers.sparse_encoder.modules import SpladePooling
from sentence_transformers.base.modules import Transformer
transformer = Transformer(place + "/encoder", transformer_task="fill-mask")
model = SparseEncoder(modules=[transformer, SpladePooling()], device="cpu")
loss = SpladeLoss(model, SparseMultipleNegativesRankingLoss(model), document_regularizer_weight=1e-3)
""",
)
CROSS = dict(
    package="cross_encoder",
    model="CrossEncoder",
    losses="BinaryCrossEntropyLoss",
    setup="""
torch.manual_seed(0)
model = CrossEncoder(place + "/encoder", num_labels=1, device="cpu")
loss = BinaryCrossEntropyLoss(model)
""",
)
KINDS = {"SparseEncoder": SPARSE, "CrossEncoder": CROSS}


def save_masked_model(folder, seed):
    torch.manual_seed(seed)
    BertForMaskedLM(make_config()).save_pretrained(folder)
    make_tokenizer().save_pretrained(folder)


# In a process where the package cannot be imported.
WITHOUT_PACKAGE = """
import json, sys
sys.modules["st_jtcse"] = None
losses = {}
for place, script in json.loads(sys.argv[1]).items():
    exec(script, {"json": json, "place": place, "losses": losses})
print(json.dumps(losses))
"""


@pytest.fixture(scope="module")
def losses(tmp_path_factory):
    """Losses with the package, which this process has imported, and without, by the kind of model."""
    root = tmp_path_factory.mktemp("other_trainers")
    scripts = {}
    for kind in KINDS:
        place = root / kind
        (save_encoder if kind == "CrossEncoder" else save_masked_model)(place / "encoder", 1)
        rows = {
            "first": ["a man runs", "the dog sleeps"] * 4,
            "second": ["one man walks", "a small cat"] * 4,
        }
        if kind == "CrossEncoder":
            rows["label"] = [1.0, 0.0] * 4
        (place / "rows.json").write_text(json.dumps(rows))
        scripts[str(place)] = SCRIPT.format(**KINDS[kind])
    with_package: dict[str, list[float]] = {}
    for place, script in scripts.items():
        exec(script, {"json": json, "place": place, "losses": with_package})
    said = run_code(WITHOUT_PACKAGE, json.dumps(scripts), folder=root)
    (without,) = (json.loads(line) for line in said.splitlines() if line.startswith('{"'))
    return {kind: (with_package[str(root / kind)], without[str(root / kind)]) for kind in KINDS}


@pytest.mark.parametrize("kind", KINDS)
def test_the_losses_of_two_steps_are_the_same_with_the_package_and_without(kind, losses):
    with_package, without = losses[kind]
    assert len(with_package) == 2 and with_package[0] > 0
    assert with_package == without
