"""What losses read of a batch (two dropout views of its column, similarities of them or of teachers), and their terms.

A batch is padded, (B, T), or under flash attention flattened by Sentence-Transformers: one row of all tokens, no mask.

Sentence-Transformers' MatryoshkaLoss runs a loss once for each d of its dimensions. It keeps the first d components of
the model's ``sentence_embedding``, and of labels that are as wide as the whole embedding, and adds up the weighted
results.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from typing import Any

import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.util.distributed import all_gather, all_gather_with_grad
from torch import Tensor, nn

from st_jtcse.errors import UserError
from st_jtcse.losses.functional import cosines, products
from st_jtcse.losses.image_views import PIXELS, augmented_twice

LENGTH_CHUNKS_ON_CPU = 4
# What losses read from the model, one row a sentence.
OUTPUTS = ("sentence_embedding", "tower_embedding", "cross_embedding", "tower_pooler")
# Of flattened sentences: where each of them starts in the one row of tokens, and where the last ends.
STARTS = "cu_seq_lens_q"
# Of features that hold view a of every sentence and then view b: they were made before, and nothing doubles them.
BOTH_VIEWS = "both_views"
# Of such features that hold, behind all views, as many rows whose outputs are subtracted from theirs.
BIASES = "biases"


class Terms(dict[str, Tensor]):
    """The terms of a loss by name, which weighs and adds up as a plain loss does."""

    def __rmul__(self, weight: float) -> Terms:
        return Terms({name: weight * value for name, value in self.items()})

    def __add__(self, other: Terms) -> Terms:
        return Terms({name: value + other[name] for name, value in self.items()})

    def __radd__(self, start: float) -> Terms:
        return Terms({name: start + value for name, value in self.items()})


def whole_dimension(model: SentenceTransformer) -> int | None:
    """Return the size of the embeddings that the model gives its loss: `truncate_dim` cuts those of `encode` only."""
    with model.truncate_embeddings(None):
        dimension: int | None = model.get_embedding_dimension()
    return dimension


def single_column(sentence_features: Iterable[dict[str, Any]], loss: nn.Module) -> dict[str, Any]:
    """Return the features of the only text column; raises UserError where there are several."""
    columns = list(sentence_features)
    if len(columns) != 1:
        raise UserError(
            f"{type(loss).__name__} makes both views of one sentence column itself, found {len(columns)} text columns; "
            "keep one column, or train on pairs with MultipleNegativesRankingLoss."
        )
    return columns[0]


def encode_views(
    model: nn.Module, features: dict[str, Any], length_chunks: int | None = None, **requests: Any
) -> dict[str, Tensor]:
    """Encode a tokenised batch of B sentences twice, or its 2B views where they are made; dropout differs row by row.

    Of images, both views are augmented. A model whose sentences are no rows of tokens, such as StaticEmbedding, encodes
    its batch as often.

    Every per-sentence output of the model has 2B rows: 0..B-1 are view a, B..2B-1 view b. They are encoded in chunks of
    similar length, each padded to its own longest row only: the same rows and the same loss as in one pass. None: 4 on
    the CPU, where padding costs most, 1 elsewhere, where small launches do. Flattened sentences have no padding, and go
    in one pass. `requests` are further features, such as ``tower_outputs=True``.
    """
    if BIASES in features:
        whole = {key: value for key, value in features.items() if key != BIASES}
        found = encode_views(model, whole, length_chunks, **requests)
        return {key: torch.sub(*rows.chunk(2)) for key, rows in found.items()}
    times = 1 if BOTH_VIEWS in features else 2
    features = {key: value for key, value in features.items() if key != BOTH_VIEWS}
    if PIXELS in features:
        features[PIXELS], times = augmented_twice(features[PIXELS]), 1
    elif STARTS in features:
        features, times = features if times == 1 else _twice(features), 1
    mask = features.get("attention_mask")
    if mask is None or PIXELS in features:
        outputs = [model(features | requests) for _ in range(times)]
        return {key: torch.cat([output[key] for output in outputs]) for key in OUTPUTS if key in outputs[0]}
    sentences, tokens = mask.shape
    if length_chunks is None:
        length_chunks = LENGTH_CHUNKS_ON_CPU if mask.device.type == "cpu" else 1
    if length_chunks > 1 and not mask[:, 0].all():
        length_chunks = 1  # Padded on the left: what is cut off behind the longest would be words.
    # Up to the last token that is attended to: a template's bias has a gap.
    lengths = (mask * torch.arange(1, tokens + 1, device=mask.device)).amax(dim=1).repeat(times)
    order = lengths.argsort(stable=True) if length_chunks > 1 else torch.arange(len(lengths), device=mask.device)
    encoded = []
    for rows in order.chunk(length_chunks):
        longest = int(lengths[rows].max()) if length_chunks > 1 else tokens
        chunk = {
            # Sentence-Transformers adds features of the whole batch (`modality`, `prompt_length`): those stay.
            key: value[rows % sentences, :longest]
            if isinstance(value, Tensor) and value.shape[:2] == mask.shape
            else value
            for key, value in features.items()
        }
        output = model(chunk | requests)
        encoded.append({key: output[key] for key in OUTPUTS if key in output})
    back = order.argsort()
    return {key: torch.cat([chunk[key] for chunk in encoded])[back] for key in encoded[0]}


def _twice(features: dict[str, Any]) -> dict[str, Any]:
    """Append flattened sentences, (1, T) of all their tokens, to themselves: view a, then view b."""
    starts = features[STARTS]
    sentences, tokens = len(starts) - 1, int(starts[-1])
    twice: dict[str, Any] = {}
    for key, value in features.items():
        if key in (STARTS, "cu_seq_lens_k"):
            twice[key] = torch.cat([value, value[1:] + tokens])
        elif key == "seq_idx":
            twice[key] = torch.cat([value, value + sentences], dim=-1)
        else:
            # What is not said of every token, such as `max_length_q` and `modality`, holds for both views.
            of_tokens = isinstance(value, Tensor) and value.dim() == 2 and value.shape[1] == tokens
            twice[key] = torch.cat([value, value], dim=-1) if of_tokens else value
    return twice


def token_sum(features: dict[str, Any]) -> Tensor:
    """Return the sum of a batch's token ids, without padding."""
    ids: Tensor = features["input_ids"]
    return ids.sum() if STARTS in features else (ids * features["attention_mask"]).sum()


def token_rows(features: dict[str, Any]) -> list[list[int]]:
    """Return the token ids of each sentence, without padding."""
    ids = features["input_ids"].tolist()
    if STARTS in features:
        starts = features[STARTS].tolist()
        return [ids[0][start:end] for start, end in itertools.pairwise(starts)]
    rows = zip(ids, features["attention_mask"].tolist())
    return [[token for token, real in zip(*row) if real] for row in rows]


def view_similarities(view_a: Tensor, view_b: Tensor, gather: bool) -> Tensor:
    """Return the cosines of view a of sentence i and view b of sentence j, (B, B).

    Where B counts the sentences of all processes, every one compares the union: the mean of their gradients is its.
    """
    if gather:
        view_a, view_b = all_gather_with_grad(view_a.contiguous()), all_gather_with_grad(view_b.contiguous())
    return cosines(view_a, view_b)


def teacher_similarities(labels: Tensor | None, loss: nn.Module, gather: bool, whole: int | None = None) -> Tensor:
    """Return the dot products of the label vectors, (B, D), one a sentence: (B, B), without gradient.

    MatryoshkaLoss cuts labels that are as wide as the model's `whole` embeddings; the teacher's similarities are those
    of its whole vectors all the same. Raises UserError where there are no vectors.
    """
    if labels is None or labels.dim() != 2:
        found = "none" if labels is None else f"labels of shape {tuple(labels.shape)}"
        raise UserError(
            f"{type(loss).__name__} needs one teacher vector per sentence as its label, found {found}; give "
            "teachers, or a column 'label' of vectors."
        )
    # A slice keeps the memory and the stride of what it was cut from.
    if labels.stride(0) == whole and labels.shape[1] < whole:
        labels = labels.as_strided((len(labels), whole), labels.stride())
    vectors = labels.detach().float()
    if gather:
        vectors = all_gather(vectors.contiguous())
    return products(vectors, vectors)
