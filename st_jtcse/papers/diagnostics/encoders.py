"""The BERT-like encoders inside a SentenceTransformer, and what their layers compute."""

from __future__ import annotations

import copy
import fnmatch
import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import Transformer
from torch import Tensor, nn

from st_jtcse.errors import UserError
from st_jtcse.modules import MultiTokenizerEnsemble
from st_jtcse.towers import EnsembleEncoderConfig, TwinEncoderConfig
from st_jtcse.towers.modeling_tower_pooling import pooled

GROUPS = ("CLS", "SEP", "punctuation", "words")
# A byte-level token that is a part of a character only.
_BROKEN = "\N{REPLACEMENT CHARACTER}"
_BATCH = 32
_INPUTS = ("input_ids", "attention_mask", "token_type_ids")


@dataclass(frozen=True)
class Encoder:
    """One encoder of a model."""

    # ``""`` for a model's only encoder, else e.g. ``tower I`` or ``member 2``.
    label: str
    owner: SentenceTransformer  # the model whose tokenizer it reads with
    # The BERT or RoBERTa model, or another whose layers are named as theirs.
    network: Any


@dataclass
class Pass:
    """What one batch gave."""

    input_ids: Tensor  # (B, T)
    mask: Tensor  # true for tokens, False for padding, (B, T)
    last_hidden: Tensor  # last hidden states, (B, T, H)
    # Attention context SA V of every layer, all heads side by side, (B, T, H).
    contexts: list[Tensor]
    # Attention matrix SA of every layer, (B, heads, T, T); empty unless asked for.
    attentions: list[Tensor]


def encoders_of(model: SentenceTransformer) -> list[Encoder]:
    """Return a model's encoders: one, a twin's towers or an ensemble's members; UserError if none
    is BERT-like.
    """
    first: Any = model[0]
    if isinstance(first, MultiTokenizerEnsemble):
        found = []
        for number, member in enumerate(first.members, start=1):
            for inner in encoders_of(member):
                label = ", ".join(filter(None, (f"member {number}", inner.label)))
                found.append(Encoder(label, inner.owner, inner.network))
        return found
    if not isinstance(first, Transformer):
        raise UserError(
            "This needs a BERT or RoBERTa encoder; the model's first module is "
            f"{type(first).__name__}."
        )
    network: Any = first.model
    kind = network.config.model_type
    if kind == TwinEncoderConfig.model_type:
        parts = dict(zip(("tower I", "tower II"), network.towers))
    elif kind == EnsembleEncoderConfig.model_type:
        parts = {f"member {number}": part for number, part in enumerate(network.members, start=1)}
    else:
        parts = {"": network}
    for part in parts.values():
        layers = getattr(getattr(part, "encoder", None), "layer", ())
        attentions = [getattr(layer, "attention", None) for layer in layers]
        if not attentions or not all(hasattr(attention, "self") for attention in attentions):
            raise UserError(
                "This needs a BERT or RoBERTa encoder, or one built like them; the model's is "
                f"{part.config.model_type!r}."
            )
    return [Encoder(label, model, part) for label, part in parts.items()]


def _copy(network: Any) -> Any:
    """Copy a network's structure and settings, but not its weights."""
    shared = {id(tensor): tensor for tensor in (*network.parameters(), *network.buffers())}
    return copy.deepcopy(network, shared)


def without_layer_norms(encoder: Encoder, pattern: str) -> Encoder:
    """Return an encoder in a copy of which nothing stands where LayerNorms were; the encoder is
    left as it is.

    Args:
        encoder: From :func:`encoders_of`.
        pattern: Which ones, by their names in the encoder, e.g.
            ``encoder.layer.5.output.LayerNorm``; ``*`` stands for anything.

    Raises:
        UserError: No LayerNorm is called so.

    References:
        JTCSE (Zong et al.), Fig. 8.
    """
    network = _copy(encoder.network)
    norms = [name for name, module in network.named_modules() if isinstance(module, nn.LayerNorm)]
    chosen = fnmatch.filter(norms, pattern)
    if not chosen:
        known = ", ".join(norms[:3])
        raise UserError(
            f"No LayerNorm is called {pattern!r}; they are called {known} and so on, and '*' is "
            "all of them."
        )
    for name in chosen:
        network.set_submodule(name, nn.Identity())
    label = ", ".join(filter(None, (encoder.label, f"without {pattern}")))
    return Encoder(label, encoder.owner, network)


def passes(
    encoder: Encoder, sentences: Sequence[str], *, attentions: bool = False
) -> Iterator[Pass]:
    """Run sentences through an encoder, batch by batch and shortest first, and keep what its layers
    compute.

    The encoder is left as it is. To keep the attention matrices needs the plain ("eager")
    attention.
    """
    network = _copy(encoder.network).eval()
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
    prompt = owner.prompts.get(owner.default_prompt_name or "")
    with torch.inference_mode():
        for start in range(0, len(ordered), _BATCH):
            features = owner.preprocess(ordered[start : start + _BATCH], prompt=prompt)
            inputs = {key: features[key].to(network.device) for key in _INPUTS if key in features}
            last_hidden = network(**inputs).last_hidden_state
            yield Pass(
                inputs["input_ids"],
                inputs["attention_mask"].bool(),
                last_hidden,
                contexts[:],
                matrices[:],
            )
            contexts.clear()
            matrices.clear()


@dataclass(frozen=True)
class AttentionSink:
    """Attention that each group of tokens receives."""

    tokens: list[str]  # the sentence's T tokens
    groups: list[str]  # the group of each, one of CLS, SEP, punctuation, words
    # Share of the attention by layer and group, (N, 4); each row sums to 1.
    mass: NDArray[np.float64]
    # By layer, the mean over heads, (N, T, T); rows ask and sum to 1.
    maps: NDArray[np.float64]


def attention_mass(attention: Tensor, groups: Sequence[str]) -> NDArray[np.float64]:
    """Return the share of a layer's attention that each group receives, averaged over heads and
    asking tokens.

    Args:
        attention: Attention matrix of one sentence without padding, (heads, T, T); rows ask and sum
            to 1.
        groups: The group of each token, T of them.

    Returns:
        (4,), in the order of CLS, SEP, punctuation, words; sums to 1.
    """
    received = attention.double().mean(dim=(0, 1)).cpu().numpy()
    member = np.array(GROUPS)[:, None] == np.array(groups)
    return np.asarray(member @ received)


def attention_sink(encoder: Encoder, sentence: str) -> AttentionSink:
    """Return where the attention of every layer goes for one sentence."""
    (batch,) = passes(encoder, [sentence], attentions=True)
    ids = batch.input_ids[0].tolist()
    tokenizer: Any = encoder.owner.tokenizer
    groups = [_group(tokenizer, token) for token in ids]
    mass = np.stack([attention_mass(attention[0], groups) for attention in batch.attentions])
    maps = [attention[0].double().mean(dim=0).cpu().numpy() for attention in batch.attentions]
    return AttentionSink(tokenizer.convert_ids_to_tokens(ids), groups, mass, np.stack(maps))


def _group(tokenizer: Any, token: int) -> str:
    if token == tokenizer.cls_token_id:
        return "CLS"
    if token == tokenizer.sep_token_id:
        return "SEP"
    text = tokenizer.decode([token]).strip()
    kinds = {unicodedata.category(char)[0] for char in text}
    if kinds and kinds <= {"P", "S"} and _BROKEN not in text:
        return "punctuation"
    return "words"


@dataclass(frozen=True)
class CLSEnergy:
    """E_CLS of the N layers of an encoder, over sentences."""

    mean: NDArray[np.float64]  # (N,)
    deviation: NDArray[np.float64]  # standard deviation over the sentences, (N,)


def cls_energy(context: Tensor, mask: Tensor) -> Tensor:
    r"""Norm of the CLS row of an attention context over the norm of all other rows together.

    .. math:: E_{CLS} = \frac{\lVert C_{cls} \rVert}{\lVert C_{rest} \rVert_F}, \qquad C = SA \, V

    C is what attention hands to the layer's output projection, all heads side by side. The other
    rows are those of every other token, SEP included, without padding; so E_CLS falls with the
    length of a sentence, about as :math:`1 / \sqrt{T - 1}`, and only encoders that read the same
    sentences can be compared.

    Args:
        context: C, (B, T, H) float; the CLS row is the first behind any padding.
        mask: True for tokens, False for padding, (B, T).

    Returns:
        (B,) float64.

    References:
        JTCSE (Zong et al.), Eq. 6.
    """
    squares = (context.double() ** 2).sum(dim=-1, keepdim=True) * mask[..., None]
    first = _cls(squares, mask)
    return (first / (squares.sum(dim=1) - first)).sqrt()[:, 0]  # JTCSE Eq. 6


def _cls(rows: Tensor, mask: Tensor) -> Tensor:
    """Return the row of each sentence's first token, which stands behind padding on the left: (B,
    any).
    """
    return pooled(rows, mask.int(), "cls")


def cls_energy_by_layer(encoder: Encoder, sentences: Sequence[str]) -> CLSEnergy:
    """Return E_CLS of every layer of an encoder."""
    found = []
    for batch in passes(encoder, sentences):
        by_layer = [cls_energy(context, batch.mask) for context in batch.contexts]
        found.append(torch.stack(by_layer, dim=1).cpu())
    energies = torch.cat(found).numpy()
    return CLSEnergy(energies.mean(axis=0), energies.std(axis=0))


@dataclass(frozen=True)
class Modulus:
    """Euclidean norms over S sentences."""

    hidden: NDArray[np.float64]  # of the CLS state h of the last layer, (S,)
    # Of the pooler output tanh(W h + b), (S,), at most the square root of H; None where the encoder
    # has no pooler
    pooler: NDArray[np.float64] | None
    # What is to be known about the pooler, None if nothing is.
    note: str | None = None


def modulus(encoder: Encoder, sentences: Sequence[str]) -> Modulus:
    """Return the moduli of an encoder's CLS states and pooler outputs.

    A pooler that was never trained, such as the random one that transformers draws for a checkpoint
    without, is recognised by its bias, which is exactly zero, and told in the note.

    Args:
        encoder: From :func:`~st_jtcse.papers.diagnostics.encoders_of`.
        sentences: The sentences; the norms come in the order of their lengths.

    Raises:
        UserError: A norm is not finite, as may be without LayerNorms.

    References:
        JTCSE (Zong et al.), Eq. 1: the pooler outputs whose moduli the loss compares.
    """
    pooler = getattr(encoder.network, "pooler", None)
    note = None
    if pooler is None:
        note = "there is no pooler."
    elif not pooler.dense.bias.any():
        note = (
            "the pooler was never trained (its bias is zero); its norms follow from the CLS state "
            "alone."
        )
    hidden, outputs = [], []
    for batch in passes(encoder, sentences):
        state = _cls(batch.last_hidden, batch.mask)
        hidden.append(_norms(state))
        if pooler is not None:
            with torch.inference_mode():
                outputs.append(_norms(pooler(state[:, None])))
    norms = np.concatenate(hidden)
    if not np.isfinite(norms).all():
        raise UserError(
            "The norms of CLS states are not finite; keep more LayerNorms, or check the weights."
        )
    return Modulus(norms, np.concatenate(outputs) if outputs else None, note)


def _norms(states: Tensor) -> NDArray[np.float64]:
    return np.asarray(states.double().norm(dim=-1).cpu().numpy())
