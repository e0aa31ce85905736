"""Two views of each sentence of a batch, encoded in one pass, and what else losses read of a batch.

A batch is padded, (B, T), or under flash attention flattened by Sentence-Transformers: one row of
all tokens, no mask.

Sentence-Transformers' MatryoshkaLoss runs a loss once for each d of its dimensions. It keeps the
first d components of the model's ``sentence_embedding``, and of labels that are as wide as the
whole embedding, and adds up the weighted results.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.losses.gradcache import CachedLossMixin
from sentence_transformers.util.distributed import all_gather, all_gather_with_grad
from torch import Tensor, nn

from st_jtcse.errors import UserError
from st_jtcse.losses.image_views import PIXELS, augmented_twice
from st_jtcse.modules.first_row import first_row_alone
from st_jtcse.modules.word_lookup import words_looked_up_once
from st_jtcse.towers.modeling_tower_layers import with_forward

LENGTH_CHUNKS_ON_CPU = 4
# What losses read from the model, one row a sentence.
OUTPUTS = ("sentence_embedding", "tower_embedding", "cross_embedding", "tower_pooler")
# Of flattened sentences: where each of them starts in the one row of tokens, and where the last
# ends.
STARTS = "cu_seq_lens_q"
# Of features that hold view a of every sentence and then view b: they were made before, and nothing
# doubles them.
BOTH_VIEWS = "both_views"
# Of such features that hold, behind all views, as many rows whose outputs are subtracted from
# theirs.
BIASES = "biases"


def whole_dimension(model: SentenceTransformer) -> int | None:
    """Return the size of the embeddings that the model gives its loss: `truncate_dim` cuts those of
    `encode` only.
    """
    with model.truncate_embeddings(None):
        dimension: int | None = model.get_embedding_dimension()
    return dimension


def single_column(sentence_features: Iterable[dict[str, Any]], loss: nn.Module) -> dict[str, Any]:
    """Return the features of the only text column; raises UserError where there are several."""
    columns = list(sentence_features)
    if len(columns) != 1:
        raise UserError(
            f"{type(loss).__name__} makes both views of one sentence column itself, found "
            f"{len(columns)} text columns; keep one column, or train on pairs with "
            "MultipleNegativesRankingLoss."
        )
    return columns[0]


@dataclass(frozen=True)
class Rows:
    """Both views of a batch as 2B rows to be encoded, a part at a time."""

    features: dict[str, Any]
    count: int
    # Where each row went, 0..B-1 of view a, then view b; None: they are in that order.
    back: Tensor | None = None
    # Of rows that are sorted by length.
    lengths: list[int] | None = None
    # Features of every token.
    padded: frozenset[str] = frozenset()

    def part(self, begin: int, end: int) -> dict[str, Any]:
        """Return the features of some rows; sorted ones are padded to their own longest only."""
        if STARTS in self.features:
            return part_of_flattened(self.features, begin, end)
        longest = self.lengths[end - 1] if self.lengths else None
        # Sentence-Transformers adds features of the whole batch (`modality`, `prompt_length`):
        # those stay.
        part = dict(self.features)
        for key in self.padded:
            part[key] = part[key][begin:end, :longest]
        if PIXELS in part:
            part[PIXELS] = part[PIXELS][begin:end]
        return part


class _Cutter(CachedLossMixin):
    """Sentence-Transformers cuts a flattened batch as the first step of embedding a part of it: to
    embed is to return the part here.
    """

    @staticmethod
    def model(features: dict[str, Any]) -> dict[str, Any]:
        return {"sentence_embedding": features}


def part_of_flattened(features: dict[str, Any], begin: int, end: int) -> dict[str, Any]:
    """Return the features of some sentences of a flattened batch."""
    part: Any = _Cutter().embed_minibatch(features, begin, end, True, False)[0]
    return dict(part)


def has_rows(features: dict[str, Any]) -> bool:
    """Say whether a batch is images or rows of tokens; those of StaticEmbedding are not."""
    return not features.keys().isdisjoint({PIXELS, STARTS, "attention_mask"})


def rows_of(features: dict[str, Any], by_length: bool) -> Rows:
    """Return a tokenised batch of B sentences twice, or its 2B views where they are made; of images
    two views each.

    `by_length` sorts padded rows. Those padded on the left stay: what is cut off behind the longest
    would be words.
    """
    made = BOTH_VIEWS in features
    features = {key: value for key, value in features.items() if key not in (BOTH_VIEWS, BIASES)}
    if PIXELS in features:
        features[PIXELS] = augmented_twice(features[PIXELS])
        return Rows(features, len(features[PIXELS]))
    if STARTS in features:
        features = features if made else _twice(features)
        return Rows(features, len(features[STARTS]) - 1)
    mask = features["attention_mask"]
    # Up to the last token that is attended to: a template's bias has a gap.
    places = torch.arange(1, mask.shape[1] + 1, device=mask.device)
    lengths = (mask * places).amax(dim=1).repeat(1 if made else 2)
    order, sorted_lengths = torch.arange(len(lengths), device=mask.device), None
    if by_length and all(mask[:, 0].tolist()):
        order = lengths.argsort(stable=True)
        sorted_lengths = lengths[order].tolist()
    of_tokens = {
        key: value[order % len(mask)]
        for key, value in features.items()
        if isinstance(value, Tensor) and value.shape[:2] == mask.shape
    }
    features = features | of_tokens
    return Rows(features, len(order), order.argsort(), sorted_lengths, frozenset(of_tokens))


def encode_views(
    model: nn.Module,
    features: dict[str, Any],
    length_chunks: int | None = None,
    embed: Callable[[dict[str, Any]], dict[str, Tensor]] | None = None,
    **requests: Any,
) -> dict[str, Tensor]:
    """Encode a tokenised batch of B sentences twice, or its 2B views where they are made; dropout
    differs row by row.

    Of images, both views are augmented. A model that reads no rows of tokens, such as
    StaticEmbedding, encodes its batch once for each view.

    Every per-sentence output of the model has 2B rows: 0..B-1 are view a, B..2B-1 view b. They are
    encoded in chunks of similar length, each padded to its own longest row only: the same rows and
    the same loss as in one pass. None: 4 on the CPU, where padding costs most, 1 elsewhere, where
    small launches do. Flattened sentences have no padding, and go in one pass. `embed` runs the
    model; None: :func:`encode`. `requests` are further features, such as ``tower_outputs=True``.
    """
    embed = partial(encode, model) if embed is None else embed
    if not has_rows(features):
        passes = 1 if BOTH_VIEWS in features else 2
        return _joined([embed(features | requests) for _ in range(passes)])
    if length_chunks is None:
        length_chunks = _chunks_here(features)
    rows = rows_of(features, length_chunks > 1)
    if rows.back is None:
        return embed(rows.features | requests)
    size = -(-rows.count // length_chunks) if rows.lengths else rows.count
    starts = range(0, rows.count, size)
    parts = [rows.part(begin, min(begin + size, rows.count)) for begin in starts]
    with ExitStack() as lookup:
        if len(parts) > 1 and "input_ids" in rows.padded:
            lookup.enter_context(words_looked_up_once(model, rows.features["input_ids"]))
        whole = _joined([embed(part | requests) for part in parts])
    return without_biases({key: value[rows.back] for key, value in whole.items()}, features)


@contextmanager
def in_length_chunks(model: nn.Module) -> Iterator[None]:
    """Have a model in training encode each batch in chunks of similar length, as
    :func:`encode_views` does: a loss that knows nothing of it gets the same embeddings.

    The loss then reads embeddings alone, no states of tokens.
    """
    whole = model.forward

    def read(part: dict[str, Any]) -> dict[str, Tensor]:
        return _read(whole(part))

    def forward(features: dict[str, Any], **given: Any) -> dict[str, Any]:
        if not model.training or given or not has_rows(features) or PIXELS in features:
            return whole(features, **given)
        return encode_views(model, {**features, BOTH_VIEWS: True}, embed=read)

    with with_forward(model, forward):
        yield


def _chunks_here(features: dict[str, Any]) -> int:
    tensors = (value for value in features.values() if isinstance(value, Tensor))
    if next(tensors).device.type == "cpu":
        return LENGTH_CHUNKS_ON_CPU
    return 1


def _joined(parts: Sequence[dict[str, Tensor]]) -> dict[str, Tensor]:
    whole = {}
    for key in parts[0]:
        whole[key] = torch.cat([part[key] for part in parts])
    return whole


def without_biases(encoded: dict[str, Tensor], features: dict[str, Any]) -> dict[str, Tensor]:
    """Subtract from the rows of all views those of their biases, where a batch has them."""
    if BIASES not in features:
        return encoded
    return {key: torch.sub(*rows.chunk(2)) for key, rows in encoded.items()}


def encode(model: nn.Module, features: dict[str, Any]) -> dict[str, Tensor]:
    """Return what losses read of a model's output."""
    with first_row_alone(model):
        return _read(model(features))


def _read(output: dict[str, Any]) -> dict[str, Tensor]:
    return {key: output[key] for key in OUTPUTS if key in output}


def _twice(features: dict[str, Any]) -> dict[str, Any]:
    """Append flattened sentences, (1, T) of all their tokens, to themselves: view a, then
    view b.
    """
    starts = features[STARTS]
    sentences, tokens = len(starts) - 1, features["input_ids"].shape[1]
    # What is not said of every token, such as `max_length_q` and `modality`, holds for both views.
    twice = dict(features)
    for key, value in features.items():
        if key in (STARTS, "cu_seq_lens_k"):
            twice[key] = torch.cat([value, value[1:] + tokens])
        elif key == "seq_idx":
            twice[key] = torch.cat([value, value + sentences], dim=-1)
        elif isinstance(value, Tensor) and value.dim() == 2 and value.shape[1] == tokens:
            twice[key] = torch.cat([value, value], dim=-1)
    return twice


def ahead(number: Tensor) -> Callable[[], int]:
    """Bring a number to the host, and return what reads it: read behind the encoding, it is there.

    Read at once, a number would have the accelerator run out of work before the host can give it
    more.
    """
    copy = number.to("cpu", non_blocking=number.is_cuda)
    arrived = torch.cuda.current_stream(number.device).record_event() if number.is_cuda else None

    def read() -> int:
        if arrived is not None:
            arrived.synchronize()
        return int(copy.numpy().item())

    return read


def token_sum(features: dict[str, Any]) -> Tensor:
    """Return the sum of a batch's token ids, without padding."""
    ids: Tensor = features["input_ids"]
    if STARTS in features:
        return ids.sum()
    return (ids * features["attention_mask"]).sum()


def token_rows(features: dict[str, Any]) -> list[list[int]]:
    """Return the token ids of each sentence, without padding."""
    ids = features["input_ids"].cpu()
    if STARTS in features:
        lengths = features[STARTS].diff().tolist()
        return [row.tolist() for row in ids[0].split(lengths)]
    masks = features["attention_mask"].cpu().bool()
    return [row[mask].tolist() for row, mask in zip(ids, masks)]


def gathered(rows: Sequence[Tensor], gather: bool) -> list[Tensor]:
    """Return tensors with the rows of all processes, where a loss gathers.

    Every process then computes the loss of the union: the mean of their gradients is its.
    """
    if not gather:
        return list(rows)
    return [all_gather_with_grad(each.contiguous()) for each in rows]


def teacher_vectors(
    labels: Tensor | None,
    loss: nn.Module,
    gather: bool,
    whole: int | None = None,
) -> Tensor:
    """Return the label vectors, (N, D), one a sentence of all processes, without gradient.

    MatryoshkaLoss cuts labels that are as wide as the model's `whole` embeddings; the teacher's
    similarities are those of its whole vectors all the same. Raises UserError where there are no
    vectors.
    """
    if labels is None or labels.dim() != 2:
        found = "none" if labels is None else f"labels of shape {tuple(labels.shape)}"
        raise UserError(
            f"{type(loss).__name__} needs one teacher vector per sentence as its label, found "
            f"{found}; give teachers, or a column 'label' of vectors."
        )
    # A slice keeps the memory and the stride of what it was cut from.
    if labels.stride(0) == whole and labels.shape[1] < whole:
        labels = labels.as_strided((len(labels), whole), labels.stride())
    vectors = labels.detach().float()
    if gather:
        return all_gather(vectors.contiguous())
    return vectors
