"""Sentence-Transformers' other models train after `import st_jtcse` as they do without it."""

import json
import os
import subprocess
import sys

import pytest
from conftest import make_config, make_tokenizer, save_encoder
from transformers import BertForMaskedLM

SCRIPT = """
import json, sys
{first}
import torch
from datasets import Dataset
from sentence_transformers.{package} import {model}, {model}Trainer, {model}TrainingArguments
from sentence_transformers.{package}.losses import {losses}
{setup}
data = Dataset.from_dict(json.load(open(sys.argv[2])))
arguments = {model}TrainingArguments(
    output_dir=sys.argv[3], max_steps=2, per_device_train_batch_size=4, report_to="none", disable_tqdm=True,
    use_cpu=True, logging_steps=1, seed=1, save_strategy="no", learning_rate=1e-3,
)
before = [parameter.clone() for parameter in model.parameters()]
trainer = {model}Trainer(model, args=arguments, train_dataset=data, loss=loss)
trainer.train()
moved = sum(not torch.equal(p, q) for p, q in zip(model.parameters(), before))
assert moved > len(before) / 2, moved
print(json.dumps([entry["loss"] for entry in trainer.state.log_history if "loss" in entry]))
"""
SPARSE = dict(
    package="sparse_encoder",
    model="SparseEncoder",
    losses="SpladeLoss, SparseMultipleNegativesRankingLoss",
    setup="""
from sentence_transformers.sparse_encoder.modules import SpladePooling
from sentence_transformers.base.modules import Transformer
transformer = Transformer(sys.argv[1], transformer_task="fill-mask")
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
model = CrossEncoder(sys.argv[1], num_labels=1, device="cpu")
loss = BinaryCrossEntropyLoss(model)
""",
)


@pytest.mark.parametrize("kind", [SPARSE, CROSS], ids=["SparseEncoder", "CrossEncoder"])
def test_the_losses_of_two_steps_are_the_same_with_the_package_and_without(kind, tmp_path):
    if kind is SPARSE:
        BertForMaskedLM(make_config()).save_pretrained(tmp_path / "encoder")
        make_tokenizer().save_pretrained(tmp_path / "encoder")
    else:
        save_encoder(tmp_path / "encoder", 1)
    rows = {"first": ["a man runs", "the dog sleeps"] * 4, "second": ["one man walks", "a small cat"] * 4}
    if kind is CROSS:
        rows["label"] = [1.0, 0.0] * 4
    (tmp_path / "rows.json").write_text(json.dumps(rows))
    losses = []
    for first in ("import st_jtcse.losses, st_jtcse.modules", "assert 'st_jtcse' not in sys.modules"):
        command = [sys.executable, "-c", SCRIPT.format(first=first, **kind)]
        files = [str(tmp_path / name) for name in ("encoder", "rows.json", "run")]
        environment = {**os.environ, "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"}
        result = subprocess.run(command + files, env=environment, capture_output=True, text=True, timeout=300)
        assert result.returncode == 0, result.stderr
        losses.append(json.loads(result.stdout.strip().splitlines()[-1]))
    assert len(losses[0]) == 2 and losses[0][0] > 0
    assert losses[0] == losses[1]
