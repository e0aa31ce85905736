"""What a loss over two views of each sentence is made of: terms, and the batch that they read.

Shapes are those of :mod:`st_jtcse.losses.functional`. N is the number of sentences in all
processes where a loss gathers, and otherwise B.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, ClassVar

import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.losses.matryoshka import CachedLossDecorator
from torch import Tensor, nn

from st_jtcse import processes
from st_jtcse.errors import UserError
from st_jtcse.losses.declaration import DeclaredLoss, LossDeclaration
from st_jtcse.losses.functional import cosines, mean_in_parts, of_anchors, products
from st_jtcse.losses.gradcache import MiniBatches
from st_jtcse.losses.views import (
    BOTH_VIEWS,
    encode_views,
    gathered,
    has_rows,
    single_column,
    teacher_vectors,
    whole_dimension,
)
from st_jtcse.modules.first_row import checkpoints_activations

# What all of these losses declare.
TWO_VIEWS = LossDeclaration(
    sentences=True,
    views="made",
    any_views=True,
    in_batch=True,
    moved={"length_chunks": "Remove it: it changes no result, and is chosen by itself."},
)
# How many sentences are compared with all others at once, where the gradients are cached.
_ANCHORS = 256


class Terms(dict[str, Tensor]):
    """The terms of a loss by name, which weighs and adds up as a plain loss does."""

    def __rmul__(self, weight: float) -> Terms:
        return Terms({name: weight * value for name, value in self.items()})

    def __add__(self, other: Terms | float) -> Terms:
        if not isinstance(other, Terms):  # The 0 that a sum begins with.
            return self
        return Terms({name: value + other[name] for name, value in self.items()})

    __radd__ = __add__

    @property
    def first(self) -> Tensor:
        """The term that was named first."""
        return next(iter(self.values()))

    def detach(self) -> Terms:
        """Return the terms without their gradients."""
        return Terms({name: value.detach() for name, value in self.items()})


class _Shared:
    """What several terms read."""

    def once(self, make: Callable[[Any], Any]) -> Any:
        """Return what a function makes of this, which is made for the first term that asks."""
        made = vars(self).setdefault("_made", {})
        if make not in made:
            made[make] = make(self)
        return made[make]


@dataclass(eq=False)
class Batch(_Shared):
    """The embeddings of a batch, as the terms of a loss read them."""

    loss: TwoViewLoss
    encoded: dict[str, Tensor]
    features: dict[str, Any]
    labels: Tensor | None = None

    @cached_property
    def views(self) -> tuple[Tensor, ...]:
        """Views a and b of this process's sentences, (B, H) each, and the third where there is
        one.
        """
        return self.encoded["sentence_embedding"].chunk(self.loss.views)

    @cached_property
    def every(self) -> list[Tensor]:
        """Views a and b of the sentences of all processes, (N, H) each."""
        return gathered(self.views[:2], self.loss.gather_across_devices)

    @cached_property
    def own(self) -> Tensor:
        """Which of the N sentences are this process's, (B,)."""
        rows = self.views[0]
        gathers = len(self.every[0]) > len(rows)
        first = processes.rank() * len(rows) if gathers else 0
        return torch.arange(first, first + len(rows), device=rows.device)

    @cached_property
    def teacher(self) -> Tensor:
        """The teacher's vectors of all processes' sentences, (N, D)."""
        loss = self.loss
        return teacher_vectors(self.labels, loss, loss.gather_across_devices, loss.dimension)


@dataclass(eq=False)
class Anchors(_Shared):
    """Some of the N sentences, A of them, and how similar each is to every sentence, (A, N).

    The sentences are turned so that each anchor's similarity with itself is on the diagonal.
    """

    batch: Batch
    begin: int
    end: int

    @cached_property
    def similarities(self) -> Tensor:
        """Cosines of the anchors' view a and every sentence's view b."""
        a, b = self.batch.every
        return of_anchors(cosines, a, b, self.begin, self.end)

    def reversed(self) -> Tensor:
        """Return the cosines of the anchors' view b and every sentence's view a."""
        a, b = self.batch.every
        if self.end - self.begin == len(a):
            return self.similarities.T
        return of_anchors(cosines, b, a, self.begin, self.end)

    def taught(self) -> Tensor:
        """Return the dot products of the teacher's vectors."""
        teacher = self.batch.teacher
        return of_anchors(products, teacher, teacher, self.begin, self.end)


@dataclass(eq=False)
class Term:
    """One summand of a loss, called with a :class:`Batch`.

    `weight` is its factor; one of weight 0 is not computed.
    """

    weight: float = field(default=1.0, kw_only=True)
    views: ClassVar[int] = 2  # of a sentence that it compares

    def __call__(self, read: Any) -> Tensor:
        """Return the term, a scalar, without its weight."""
        raise NotImplementedError

    def take(self, batch: Batch) -> None:
        """Keep what is needed of a batch that was trained on; most terms keep nothing."""


@dataclass(eq=False)
class AnchorTerm(Term):
    """A mean over sentences of what their similarities are, called with :class:`Anchors`.

    `whole`: it compares the anchors with each other, and needs all of them at once.
    """

    whole: bool = field(default=False, kw_only=True)


class TwoViewLoss(DeclaredLoss, nn.Module):
    """Base of the losses that encode one column twice: a weighted sum of terms.

    `length_chunks`, which changes no result, is an attribute and no argument: the number of chunks
    of similar length in which a batch is encoded. None: 4 on the CPU, else 1.
    """

    model: Any
    terms: Mapping[str, Term]
    length_chunks: int | None = None
    gather_across_devices: bool
    # What a loss that has them as arguments encodes at once, with its gradients cached.
    mini_batch_size: int | None
    mini_batch_num_tokens: int | None
    # Features that ask the model for more than embeddings.
    requests: ClassVar[dict[str, Any]] = {}
    # Sentence-Transformers' MatryoshkaLoss puts its dimensions and weights here, where
    # `uses_gradient_cache` is true.
    calculate_loss: CachedLossDecorator | None = None

    def __init__(self, model: SentenceTransformer, arguments: Mapping[str, Any]) -> None:
        super().__init__()
        self.keep(arguments)
        self.model = model
        # Kept, because MatryoshkaLoss cuts what the model gives.
        self.dimension = whole_dimension(model)

    @property
    def views(self) -> int:
        """How many views of each sentence are compared."""
        return max(term.views for term in self.terms.values())

    @property
    def uses_gradient_cache(self) -> bool:
        """Whether the batch is encoded in mini-batches, and the backward pass encodes
        them again.
        """
        settings = ("mini_batch_size", "mini_batch_num_tokens")
        return any(getattr(self, name, None) is not None for name in settings)

    @property
    def anchors_at_once(self) -> int | None:
        """How many sentences are compared with all others at once; None: all."""
        if self.uses_gradient_cache:
            return _ANCHORS
        return None

    def look_ahead(self, features: dict[str, Any]) -> None:
        """Begin, before the batch is encoded, what the host has to know of it."""

    def forward(
        self,
        sentence_features: Iterable[dict[str, Any]],
        labels: Tensor | None = None,
    ) -> Tensor | Terms:
        """Encode the views of the batch and return the loss; of several terms, each by its name."""
        features = single_column(sentence_features, self)
        if self.views > 2 and BOTH_VIEWS not in features:
            raise UserError(
                f"{type(self).__name__} needs a third view of each sentence, found two by dropout; "
                "give 'views'."
            )
        self.look_ahead(features)
        if not self.uses_gradient_cache:
            encoded = encode_views(self.model, features, self.length_chunks, **self.requests)
            return self._as_loss(self.compare(encoded, features, labels))
        if checkpoints_activations(self.model):
            raise UserError(
                "Gradient checkpointing and mini_batch_size both encode everything twice; switch "
                "gradient checkpointing off, and lower mini_batch_size where memory is short."
            )
        if not has_rows(features):
            raise UserError(
                "mini_batch_size encodes rows of tokens in parts, found none; leave it out."
            )
        return self._as_loss(MiniBatches(self, features, labels).loss())

    def compute_loss_from_embeddings(
        self,
        embeddings: list[Tensor],
        labels: Tensor | None = None,
    ) -> Tensor | Terms:
        """Return the loss of the views' embeddings, (B, H) each."""
        encoded = {"sentence_embedding": torch.cat(embeddings)}
        return self._as_loss(self._sum(Batch(self, encoded, {}, labels)))

    def compare(
        self,
        encoded: dict[str, Tensor],
        features: dict[str, Any],
        labels: Tensor | None,
    ) -> Terms:
        """Return the weighted terms of what was encoded: the rows of view a, then of view b."""
        batch = Batch(self, encoded, features, labels)
        found = self._sum(batch)
        # What is only evaluated is not trained on.
        if torch.is_grad_enabled():
            for term in self.terms.values():
                term.take(batch)
        return found

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
        count = around.n_dims_per_step
        if 0 < count < len(every):
            return random.sample(every, count)
        return every

    def _as_loss(self, terms: Terms) -> Tensor | Terms:
        """Return several terms by name, and a single one as the loss."""
        if len(self.terms) == 1:
            return terms.first
        return terms

    def _sum(self, batch: Batch) -> Terms:
        on = {name: term for name, term in self.terms.items() if term.weight}
        # They read the same similarities: of some anchors at a time, each computed once.
        ranking = {name: term for name, term in on.items() if isinstance(term, AnchorTerm)}
        found = Terms()
        for name in on:
            if name not in ranking:
                found[name] = on[name].weight * on[name](batch)
        if not ranking:
            return found

        def of(begin: int, end: int) -> Terms:
            anchors = Anchors(batch, begin, end)
            return Terms({name: term.weight * term(anchors) for name, term in ranking.items()})

        at_once = self.anchors_at_once
        if any(term.whole for term in ranking.values()):
            at_once = None
        return Terms(found | mean_in_parts(of, len(batch.every[0]), at_once))
