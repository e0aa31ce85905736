"""Options of the contrastive term as pure functions of tensors, shaped as in
:mod:`st_jtcse.losses.functional`.

Angles are between embeddings, θ = arccos of their cosine, and margins on them are in degrees.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn import functional as F

from st_jtcse.losses.functional import cosines


def contrast(
    queries: Tensor,
    candidates: Tensor,
    own: Tensor,
    temperature: float,
    margin: float = 0.0,
    same_view: Tensor | None = None,
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
        same_view: (M, H), the candidates' sentences in the queries' view: negatives too, but for
            the query itself.
        past: (N, H), further negatives of every query.

    References:
        Zhang et al., ArcCSE, ACL 2022, ArcCon loss.
    """
    at = own.unsqueeze(1)
    logits = cosines(queries, candidates)
    logits = logits.scatter(1, at, with_margin(logits.gather(1, at), margin))
    if same_view is not None:
        logits = torch.cat([logits, cosines(queries, same_view).scatter(1, at, -torch.inf)], dim=1)
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
    view_a: Tensor, view_b: Tensor, soft: Tensor, least: float, most: float
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


def smoothed(rows: Tensor, past: Tensor, count: int, temperature: float = 2.0) -> Tensor:
    r"""Return each embedding's group: the mean of itself and its nearest past ones by attention.

    .. math:: \tilde x_i = \sum_{n \in \{x_i\} \cup N_k(x_i)}
        \frac{e^{\cos(x_i, n) / \beta}}{\sum_{m \in \{x_i\} \cup N_k(x_i)} e^{\cos(x_i, m) / \beta}}
        \, \frac{n}{\|n\|}

    Args:
        rows: (B, H).
        past: (N, H) without gradient, the rows themselves among them; N > k.
        count: k, how many of the past ones but itself are in a group.
        temperature: β.

    References:
        He et al., IS-CSE, AAAI 2023, the group of a sentence by its nearest neighbours.
    """
    nearest = (
        cosines(rows.detach(), past).topk(count + 1).indices[:, 1:]
    )  # The nearest is the row itself.
    group = F.normalize(torch.cat([rows.unsqueeze(1), past.to(rows)[nearest]], dim=1), dim=-1)
    weights = ((group[:, :1] * group).sum(dim=-1) / temperature).softmax(dim=1)
    return (weights.unsqueeze(2) * group).sum(dim=1)
