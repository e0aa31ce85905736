"""A loss in the memory of a few sentences, however large the batch (GradCache).

A batch is encoded a few rows at a time without gradients, the loss of all embeddings is brought
back to them, and then each part is encoded once more, with the same dropout, and given its
gradients: the loss and the gradients of the whole batch, in twice the time of encoding.
"""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import torch
from sentence_transformers.base.losses.gradcache import CachedLossMixin, RandContext
from sentence_transformers.sentence_transformer.losses.matryoshka import shrink
from torch import Tensor

from st_jtcse.losses.views import encode, rows_of, without_biases


class MiniBatches(CachedLossMixin):
    """One batch of a loss over two views, a few rows of it at a time."""

    def __init__(self, loss: Any, features: dict[str, Any], labels: Tensor | None) -> None:
        self.model = loss.model
        self._loss, self._features, self._labels = loss, features, labels
        self._rows = rows_of(features, by_length=True)
        self.mini_batch_size = loss.mini_batch_size or self._rows.count
        self.mini_batch_num_tokens = loss.mini_batch_num_tokens
        self._outputs: dict[str, torch.Size] = {}
        self._terms: Any = 0.0  # of all dimensions so far

    def loss(self) -> Any:
        """Return the terms; the backward pass of the first is that of all."""
        first = self.forward_cached([self._rows.features])
        name = next(iter(self._terms))
        self._terms[name] = first
        return self._terms

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
        with random_state or nullcontext(), torch.set_grad_enabled(with_grad):
            state = RandContext(*features.values()) if copy_random_state else None
            encoded = encode(self.model, features)
        self._outputs = {key: output.shape[1:] for key, output in encoded.items()}
        return torch.cat([output.flatten(1) for output in encoded.values()], dim=1), state

    def calculate_loss(
        self,
        reps: list[list[Tensor]],
        labels: Tensor | None = None,
        *,
        with_backward: bool = False,
    ) -> Tensor:
        """Compute the terms and bring them back to the embeddings; return the first."""
        rows = torch.cat(reps[0])
        if self._rows.back is not None:
            rows = rows[self._rows.back]
        # Cut off: each dimension of MatryoshkaLoss goes back by itself, and frees what it needed.
        given = rows.detach().requires_grad_(with_backward)
        for dimension, weight in self._loss.dimensions():
            encoded = self._split(given, dimension)
            terms = weight * self._loss.compare(encoded, self._features, self._labels)
            if with_backward:
                torch.stack(list(terms.values())).sum().backward()
            self._terms = terms.detach() + self._terms
        if with_backward:
            rows.backward(given.grad)
        first: Tensor = self._terms.first
        return first

    def _split(self, rows: Tensor, dimension: int | None) -> dict[str, Tensor]:
        parts = rows.split([shape.numel() for shape in self._outputs.values()], dim=1)
        outputs = zip(self._outputs.items(), parts, strict=True)
        encoded = {key: part.unflatten(1, shape) for (key, shape), part in outputs}
        encoded = without_biases(encoded, self._features)
        if dimension is not None:
            encoded["sentence_embedding"] = shrink(encoded["sentence_embedding"], dimension)
        return encoded
