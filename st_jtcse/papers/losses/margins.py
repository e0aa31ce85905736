"""InfoNCE with angular margins, past sentences and soft negatives.

Functions are shaped as those of :mod:`st_jtcse.losses.functional`. Angles are between embeddings,
θ = arccos of their cosine, and margins on them are in degrees.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor
from torch.nn import functional as F

from st_jtcse.losses.functional import cosines
from st_jtcse.losses.terms import Batch, Term
from st_jtcse.papers.losses.past_negatives import PastNegatives


@dataclass(eq=False)
class MarginInfoNCE(Term):
    """InfoNCE whose positive must be nearer by an angular margin, in degrees, and that has past
    sentences among its negatives.
    """

    temperature: float
    margin: float = 0.0
    past: PastNegatives | None = None

    def __call__(self, batch: Batch) -> Tensor:
        """Return the mean over this process's sentences."""
        past = self.past.rows() if self.past else None
        a, every_b = batch.views[0], batch.every[1]
        return contrast(a, every_b, batch.own, self.temperature, self.margin, past=past)

    def take(self, batch: Batch) -> None:
        """Put the batch behind the queue."""
        if self.past:
            self.past.take(batch)


@dataclass(eq=False)
class SoftNegatives(Term):
    """The third view's cosine lies by a gap below the positive's, from `least` to `most`."""

    least: float
    most: float
    views: ClassVar[int] = 3

    def __call__(self, batch: Batch) -> Tensor:
        """Return the mean over this process's sentences."""
        a, b, soft = batch.views
        return bidirectional_margin(a, b, soft, self.least, self.most)


def contrast(
    queries: Tensor,
    candidates: Tensor,
    own: Tensor,
    temperature: float,
    margin: float = 0.0,
    past: Tensor | None = None,
) -> Tensor:
    r"""InfoNCE whose positive must be nearer by an angular margin m, among further negatives.

    .. math:: L = -\frac{1}{B} \sum_i \log \frac{e^{\cos(\theta_{i,i^+} + m) / \tau}}
        {e^{\cos(\theta_{i,i^+} + m) / \tau} + \sum_{c \neq i^+} e^{\cos \theta_{i,c} / \tau}}

    Args:
        queries: (B, H).
        candidates: (M, H), each query's positive among them.
        own: (B,), which of the candidates is each query's positive.
        temperature: τ.
        margin: m in degrees; 0 gives InfoNCE.
        past: (N, H), further negatives of every query.

    References:
        Zhang et al., ArcCSE, ACL 2022, ArcCon loss.
    """
    at = own.unsqueeze(1)
    logits = cosines(queries, candidates)
    logits = logits.scatter(1, at, with_margin(logits.gather(1, at), margin))
    if past is not None:
        logits = torch.cat([logits, cosines(queries, past.to(queries))], dim=1)
    return F.cross_entropy(logits / temperature, own)


def with_margin(cosine: Tensor, margin: float) -> Tensor:
    r"""Return :math:`\cos(\theta + m) = \cos\theta \cos m - \sin\theta \sin m` of
    :math:`\cos\theta`, m in degrees.
    """
    m = math.radians(margin)
    # At θ = 0 the root has no finite derivative.
    sine = (1 - cosine.square()).clamp_min(torch.finfo(cosine.dtype).eps).sqrt()
    return cosine * math.cos(m) - sine * math.sin(m)


def bidirectional_margin(
    view_a: Tensor,
    view_b: Tensor,
    soft: Tensor,
    least: float,
    most: float,
) -> Tensor:
    r"""Hold each soft negative farther than the positive, by a gap of the cosines from α to β.

    .. math::

        L_{BML} = \frac{1}{B} \sum_i \max(0, \Delta_i + \alpha) + \max(0, -\Delta_i - \beta), \quad
        \Delta_i = \cos(a_i, s_i) - \cos(a_i, b_i)

    It is 0 where the soft negative's cosine lies α to β below the positive's.

    References:
        Wang et al., SNCSE, 2022, bidirectional margin loss.
    """
    gap = F.cosine_similarity(view_a, soft, dim=-1) - F.cosine_similarity(view_a, view_b, dim=-1)
    return (F.relu(gap + least) + F.relu(-gap - most)).mean()
