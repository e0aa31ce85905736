"""What the losses of two views have in common, and how their memory stays that of a few sentences
(GradCache).

A batch is encoded a few rows at a time without gradients, the loss of all embeddings is brought
back to them, and then each part is encoded once more, with the same dropout, and given its
gradients: the loss and the gradients of the whole batch, in twice the time of encoding.
"""

from __future__ import annotations

import random
from collections.abc import Iterable
from contextlib import nullcontext
from typing import Any, ClassVar

import torch
from sentence_transformers.base.losses.gradcache import CachedLossMixin, RandContext
from sentence_transformers.sentence_transformer.losses.matryoshka import CachedLossDecorator, shrink
from torch import Tensor, nn

from st_jtcse.errors import UserError
from st_jtcse.losses.declaration import DeclaredLoss
from st_jtcse.losses.views import (
    Terms,
    encode,
    encode_views,
    has_rows,
    rows_of,
    single_column,
    without_biases,
)
from st_jtcse.modules.first_row import checkpoints_activations

# So many sentences are compared with all others at once, where the gradients are cached.
_ANCHORS = 256


class TwoViewLoss(DeclaredLoss, nn.Module):
    """Base of the losses that encode one column twice; what they make of the embeddings is
    :meth:`compare`.
    """

    model: Any
    length_chunks: int | None
    mini_batch_size: int | None
    mini_batch_num_tokens: int | None
    requests: ClassVar[dict[str, Any]] = {}  # features that ask the model for more than embeddings
    # Sentence-Transformers' MatryoshkaLoss puts its dimensions and weights here, where
    # `uses_gradient_cache` is true.
    calculate_loss: CachedLossDecorator | None = None

    @property
    def uses_gradient_cache(self) -> bool:
        """Whether the batch is encoded in mini-batches, and the backward pass encodes
        them again.
        """
        return self.mini_batch_size is not None or self.mini_batch_num_tokens is not None

    @property
    def anchors_at_once(self) -> int | None:
        """How many sentences are compared with all others at once; None: all."""
        return _ANCHORS if self.uses_gradient_cache else None

    def compare(
        self, encoded: dict[str, Tensor], features: dict[str, Any], labels: Tensor | None
    ) -> Tensor | Terms:
        """Return the loss of 2B embeddings, view a and then view b, or its weighted terms
        by name.
        """
        raise NotImplementedError

    def look_ahead(self, features: dict[str, Any]) -> None:
        """Begin, before the batch is encoded, what the host has to know of it."""

    def forward(
        self, sentence_features: Iterable[dict[str, Any]], labels: Tensor | None = None
    ) -> Tensor | Terms:
        """Encode both views of the batch and return the loss, or its weighted terms by name."""
        features = single_column(sentence_features, self)
        self.look_ahead(features)
        if not self.uses_gradient_cache:
            encoded = encode_views(self.model, features, self.length_chunks, **self.requests)
            return self.compare(encoded, features, labels)
        if checkpoints_activations(self.model):
            raise UserError(
                "Gradient checkpointing and mini_batch_size both encode everything twice; switch "
                "gradient "
                "checkpointing off, and lower mini_batch_size where memory is short."
            )
        if not has_rows(features):
            raise UserError(
                "mini_batch_size encodes rows of tokens in parts, found none; leave it out."
            )
        return _MiniBatches(self, features, labels).loss()

    def dimensions(self) -> list[tuple[int | None, float]]:
        """Return what MatryoshkaLoss, where it is around the loss, cuts the embeddings to in this
        step, and weighs.
        """
        around = self.calculate_loss
        if around is None:
            return [(None, 1.0)]
        every: list[tuple[int | None, float]] = list(
            zip(around.matryoshka_dims, around.matryoshka_weights)
        )
        return (
            random.sample(every, around.n_dims_per_step)
            if 0 < around.n_dims_per_step < len(every)
            else every
        )


class _MiniBatches(CachedLossMixin):
    """One batch of a loss, a few rows of it at a time."""

    def __init__(self, loss: TwoViewLoss, features: dict[str, Any], labels: Tensor | None) -> None:
        self.model = loss.model
        self._loss, self._features, self._labels = loss, features, labels
        self._rows = rows_of(features, by_length=True)
        self.mini_batch_size = loss.mini_batch_size or self._rows.count
        self.mini_batch_num_tokens = loss.mini_batch_num_tokens
        self._outputs: dict[str, torch.Size] = {}
        self._terms: Any = 0.0  # of all dimensions so far, a Tensor or Terms

    def loss(self) -> Tensor | Terms:
        """Return the loss; the backward pass of it, or of its first term, is that of all terms."""
        first = self.forward_cached([self._rows.features])
        if not isinstance(self._terms, Terms):
            return first
        return Terms(self._terms | {next(iter(self._terms)): first})

    def embed_minibatch(
        self,
        sentence_feature: dict[str, Tensor],
        begin: int,
        end: int,
        with_grad: bool,
        copy_random_state: bool,
        random_state: RandContext | None = None,
    ) -> tuple[Tensor, RandContext | None]:
        """Encode some rows: all that the loss reads of each, side by side."""
        features = self._rows.part(begin, end) | self._loss.requests
        with random_state or nullcontext(), nullcontext() if with_grad else torch.no_grad():
            state = RandContext(*features.values()) if copy_random_state else None
            encoded = encode(self.model, features)
        self._outputs = {key: output.shape[1:] for key, output in encoded.items()}
        return torch.cat([output.flatten(1) for output in encoded.values()], dim=1), state

    def calculate_loss(
        self, reps: list[list[Tensor]], labels: Tensor | None = None, *, with_backward: bool = False
    ) -> Tensor:
        """Compute the loss and bring it back to the embeddings; return it, or its first term."""
        rows = torch.cat(reps[0])
        if self._rows.back is not None:
            rows = rows[self._rows.back]
        # Cut off: each dimension of MatryoshkaLoss goes back by itself, and frees what it needed.
        given = rows.detach().requires_grad_(with_backward)
        for dimension, weight in self._loss.dimensions():
            terms = weight * self._loss.compare(
                self._split(given, dimension), self._features, self._labels
            )
            if with_backward:
                torch.stack(
                    list(terms.values()) if isinstance(terms, Terms) else [terms]
                ).sum().backward()
            self._terms = terms.detach() + self._terms
        if with_backward:
            rows.backward(given.grad)
        first: Tensor = (
            next(iter(self._terms.values())) if isinstance(self._terms, Terms) else self._terms
        )
        return first

    def _split(self, rows: Tensor, dimension: int | None) -> dict[str, Tensor]:
        parts = rows.split([shape.numel() for shape in self._outputs.values()], dim=1)
        encoded = {
            key: part.unflatten(1, self._outputs[key])
            for key, part in zip(self._outputs, parts, strict=True)
        }
        encoded = without_biases(encoded, self._features)
        if dimension is not None:
            encoded["sentence_embedding"] = shrink(encoded["sentence_embedding"], dimension)
        return encoded
