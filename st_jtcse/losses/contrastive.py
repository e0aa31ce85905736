"""The term by which one view of a sentence is to be near another and far from other sentences."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from sentence_transformers.sentence_transformer.losses import MultipleNegativesRankingLoss
from torch import Tensor

from st_jtcse.losses.functional import info_nce, nt_xent
from st_jtcse.losses.terms import Batch, Term

Candidates = Literal["other_view", "both_views"]


@dataclass(eq=False)
class InfoNCE(Term):
    """InfoNCE of view a against view b, by Sentence-Transformers'
    :class:`~sentence_transformers.sentence_transformer.losses.MultipleNegativesRankingLoss`; with
    ``"both_views"`` NT-Xent.
    """

    temperature: float
    candidates: Candidates = "other_view"

    def __call__(self, batch: Batch) -> Tensor:
        """Return the mean over the sentences, or with both views over the rows of both."""
        loss, both = batch.loss, self.candidates == "both_views"
        if loss.uses_gradient_cache:
            form = nt_xent if both else info_nce
            return form(batch.every[0], batch.every[1], self.temperature, loss.anchors_at_once)
        ranking: Any = MultipleNegativesRankingLoss(
            None,  # type: ignore[arg-type]  # What it computes here needs no model.
            scale=1 / self.temperature,
            gather_across_devices=loss.gather_across_devices,
            directions=("query_to_doc", "query_to_query") if both else ("query_to_doc",),
        )
        a, b = batch.views[:2]
        found: Tensor = ranking.compute_loss_from_embeddings([a, b], None)
        if both:  # Theirs scores the rows of its first column only.
            found = (found + ranking.compute_loss_from_embeddings([b, a], None)) / 2
        return found
