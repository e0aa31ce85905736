"""The BERT-like encoders inside a SentenceTransformer, and what their layers compute."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import Transformer
from torch import Tensor

from st_jtcse.errors import UserError
from st_jtcse.modules import MultiTokenizerEnsemble
from st_jtcse.towers import EnsembleEncoderConfig, TwinEncoderConfig

_BATCH = 32
_INPUTS = ("input_ids", "attention_mask", "token_type_ids")


@dataclass(frozen=True)
class Encoder:
    """One encoder of a model."""

    label: str  # ``""`` for a model's only encoder, else e.g. ``tower I`` or ``member 2``
    owner: SentenceTransformer  # the model whose tokenizer it reads with
    network: Any  # the BERT or RoBERTa model, or another whose layers are named as theirs


@dataclass
class Pass:
    """What one batch gave."""

    input_ids: Tensor  # (B, T)
    mask: Tensor  # true for tokens, False for padding, (B, T)
    last_hidden: Tensor  # last hidden states, (B, T, H)
    contexts: list[Tensor]  # attention context SA V of every layer, all heads side by side, (B, T, H)
    attentions: list[Tensor]  # attention matrix SA of every layer, (B, heads, T, T); empty unless asked for


def encoders_of(model: SentenceTransformer) -> list[Encoder]:
    """Return a model's encoders: one, the two towers of a twin, or the members of an ensemble.

    Raises:
        UserError: It has no BERT-like encoder.
    """
    first: Any = model[0]
    if isinstance(first, MultiTokenizerEnsemble):
        return [
            Encoder(", ".join(filter(None, (f"member {number}", inner.label))), inner.owner, inner.network)
            for number, member in enumerate(first.members, start=1)
            for inner in encoders_of(member)
        ]
    if not isinstance(first, Transformer):
        raise UserError(f"This needs a BERT or RoBERTa encoder; the model's first module is {type(first).__name__}.")
    network: Any = first.model
    kind = network.config.model_type
    if kind == TwinEncoderConfig.model_type:
        parts = [(f"tower {numeral}", tower) for numeral, tower in zip(("I", "II"), network.towers)]
    elif kind == EnsembleEncoderConfig.model_type:
        parts = [(f"member {number}", member) for number, member in enumerate(network.members, start=1)]
    else:
        parts = [("", network)]
    for _, part in parts:
        layers = getattr(getattr(part, "encoder", None), "layer", ())
        if not layers or not all(hasattr(getattr(layer, "attention", None), "self") for layer in layers):
            raise UserError(f"This needs a BERT or RoBERTa encoder, or one built like them; the model's is {kind!r}.")
    return [Encoder(label, model, part) for label, part in parts]


def passes(encoder: Encoder, sentences: Sequence[str], *, attentions: bool = False) -> Iterator[Pass]:
    """Run sentences through an encoder, batch by batch and shortest first, and keep what its layers compute.

    The encoder is left as it is. To keep the attention matrices needs the plain ("eager") attention.
    """
    network = encoder.network
    # A copy of its structure and settings, but not of its weights.
    network = copy.deepcopy(network, {id(tensor): tensor for tensor in (*network.parameters(), *network.buffers())})
    network.eval()
    if attentions:
        network.set_attn_implementation("eager")
    contexts: list[Tensor] = []
    matrices: list[Tensor] = []

    def keep(module: Any, inputs: Any, output: tuple[Tensor, Tensor | None]) -> None:
        contexts.append(output[0].float())
        if attentions and output[1] is not None:
            matrices.append(output[1].float())

    for layer in network.encoder.layer:
        layer.attention.self.register_forward_hook(keep)
    ordered = sorted(sentences, key=len)
    owner = encoder.owner
    prompt = owner.prompts.get(owner.default_prompt_name) if owner.default_prompt_name else None
    with torch.inference_mode():
        for start in range(0, len(ordered), _BATCH):
            features = owner.preprocess(ordered[start : start + _BATCH], prompt=prompt)
            inputs = {key: features[key].to(network.device) for key in _INPUTS if key in features}
            last_hidden = network(**inputs).last_hidden_state
            yield Pass(inputs["input_ids"], inputs["attention_mask"].bool(), last_hidden, contexts[:], matrices[:])
            contexts.clear()
            matrices.clear()
