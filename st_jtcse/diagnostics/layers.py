"""What a sentence meets inside an encoder: where attention goes, E_CLS, and the lengths of its CLS states."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from st_jtcse.diagnostics.encoders import Encoder, passes

GROUPS = ("CLS", "SEP", "punctuation", "words")
# A byte-level token that is a part of a character only.
_BROKEN = "\N{REPLACEMENT CHARACTER}"


@dataclass(frozen=True)
class AttentionSink:
    """Attention that each group of tokens receives."""

    tokens: list[str]  # the sentence's T tokens
    groups: list[str]  # the group of each, one of CLS, SEP, punctuation, words
    mass: NDArray[np.float64]  # share of the attention by layer and group, (N, 4); each row sums to 1


def attention_mass(attention: Tensor, groups: Sequence[str]) -> NDArray[np.float64]:
    """Return the share of a layer's attention that each group receives, averaged over heads and asking tokens.

    Args:
        attention: Attention matrix of one sentence without padding, (heads, T, T); rows ask and sum to 1.
        groups: The group of each token, T of them.

    Returns:
        (4,), in the order of CLS, SEP, punctuation, words; sums to 1.
    """
    received = attention.double().mean(dim=(0, 1)).cpu().numpy()
    member = np.array([[group == name for group in groups] for name in GROUPS])
    return np.asarray(member @ received)


def attention_sink(encoder: Encoder, sentence: str) -> AttentionSink:
    """Return where the attention of every layer goes for one sentence."""
    (batch,) = passes(encoder, [sentence], attentions=True)
    ids = batch.input_ids[0].tolist()
    tokenizer: Any = encoder.owner.tokenizer
    groups = [_group(tokenizer, token) for token in ids]
    mass = np.stack([attention_mass(attention[0], groups) for attention in batch.attentions])
    return AttentionSink(tokenizer.convert_ids_to_tokens(ids), groups, mass)


def _group(tokenizer: Any, token: int) -> str:
    if token == tokenizer.cls_token_id:
        return "CLS"
    if token == tokenizer.sep_token_id:
        return "SEP"
    text = tokenizer.decode([token]).strip()
    is_punctuation = bool(text) and all(unicodedata.category(char)[0] in "PS" and char != _BROKEN for char in text)
    return "punctuation" if is_punctuation else "words"


@dataclass(frozen=True)
class CLSEnergy:
    """E_CLS of the N layers of an encoder, over sentences."""

    mean: NDArray[np.float64]  # (N,)
    deviation: NDArray[np.float64]  # standard deviation over the sentences, (N,)


def cls_energy(context: Tensor, mask: Tensor) -> Tensor:
    r"""Norm of the CLS row of an attention context over the norm of all other rows together.

    .. math:: E_{CLS} = \frac{\lVert C_{cls} \rVert}{\lVert C_{rest} \rVert_F}, \qquad C = SA \, V

    C is what attention hands to the layer's output projection, all heads side by side. The other rows are those of
    every other token, SEP included, without padding; so E_CLS falls with the length of a sentence, about as
    :math:`1 / \sqrt{T - 1}`, and only encoders that read the same sentences can be compared.

    Args:
        context: C, (B, T, H) float; the CLS row is the first.
        mask: True for tokens, False for padding, (B, T).

    Returns:
        (B,) float64.

    References:
        JTCSE (Zong et al.), Eq. 6.
    """
    squares = (context.double() ** 2).sum(dim=-1) * mask
    return (squares[:, 0] / squares[:, 1:].sum(dim=1)).sqrt()  # JTCSE Eq. 6


def cls_energy_by_layer(encoder: Encoder, sentences: Sequence[str]) -> CLSEnergy:
    """Return E_CLS of every layer of an encoder."""
    found = [
        torch.stack([cls_energy(context, batch.mask) for context in batch.contexts], dim=1).cpu()
        for batch in passes(encoder, sentences)
    ]
    energies = torch.cat(found).numpy()
    return CLSEnergy(energies.mean(axis=0), energies.std(axis=0))


@dataclass(frozen=True)
class Modulus:
    """Euclidean norms over S sentences."""

    hidden: NDArray[np.float64]  # of the CLS state h of the last layer, (S,)
    # Of the pooler output tanh(W h + b), (S,), at most the square root of H; None where the encoder has no pooler
    pooler: NDArray[np.float64] | None
    note: str | None = None  # what is to be known about the pooler, None if nothing is


def modulus(encoder: Encoder, sentences: Sequence[str]) -> Modulus:
    """Return the moduli of an encoder's CLS states and pooler outputs.

    A pooler that was never trained, such as the random one that transformers draws for a checkpoint without, is
    recognised by its bias, which is exactly zero, and told in the note.

    Args:
        encoder: From :func:`~st_jtcse.diagnostics.encoders_of`.
        sentences: The sentences; the norms come in the order of their lengths.

    References:
        JTCSE (Zong et al.), Eq. 1: the pooler outputs whose moduli the loss compares.
    """
    pooler = getattr(encoder.network, "pooler", None)
    note = None
    if pooler is None:
        note = "there is no pooler."
    elif not pooler.dense.bias.any():
        note = "the pooler was never trained (its bias is zero); its norms follow from the CLS state alone."
    hidden, pooled = [], []
    for batch in passes(encoder, sentences):
        hidden.append(_norms(batch.last_hidden[:, 0]))
        if pooler is not None:
            with torch.inference_mode():
                pooled.append(_norms(pooler(batch.last_hidden)))
    return Modulus(np.concatenate(hidden), np.concatenate(pooled) if pooled else None, note)


def _norms(states: Tensor) -> NDArray[np.float64]:
    found: NDArray[np.float64] = states.double().norm(dim=-1).cpu().numpy()
    return found
