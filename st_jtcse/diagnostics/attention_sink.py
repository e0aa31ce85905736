"""Where a sentence's attention goes, layer by layer."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
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
    """Return where the attention of every layer goes for one sentence.

    Args:
        encoder: From :func:`~st_jtcse.diagnostics.encoders_of`; it is left as it is.
        sentence: The sentence.
    """
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
