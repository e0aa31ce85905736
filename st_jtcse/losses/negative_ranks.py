"""Ranks of in-batch negatives by a frozen scorer, and what LS-RNS makes of them, as pure functions
of tensors.

Matrices are (B, B), or their first rows: row i is an anchor, column j ≠ i one of its M = B - 1
negatives. The diagonal is no negative; it is 0 in every result. s are the scorer's similarities, r
the ranks, α the shares kept; S, the student's, compares view a of sentence i with view b of
sentence j. Temperatures τ are above 0, and losses are scalars. The formulas of rank functions, the
normalised target and the scale of the weights are our reading of LS-RNS.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import torch
from torch import Tensor

Ranks = Literal["soft", "percentile", "bins"]
Retention = Literal["linear", "to_zero", "exponential", "reciprocal"]
# How many of the B^3 comparisons are held at once.
_ELEMENTS = 1 << 24


def negative_ranks(
    scores: Tensor,
    kind: Ranks = "soft",
    softness: float = 0.05,
    groups: int = 10,
) -> Tensor:
    r"""Rank r of each negative among its anchor's, in 1..M, 1 the most similar.

    ``"soft"``: a smooth rank, in which equal scores are equal; δ > 0 is in units of similarity:

    .. math:: r_{ij} = 1 + \sum_{k \ne i, j} \sigma\big((s_{ik} - s_{ij}) / \delta\big)

    ``"percentile"``: the places of the order in groups of equal size, each with its last place as
    rank. ``"bins"``: the same of the range from the anchor's highest to its lowest score, in bins
    of equal width.
    """
    others = negatives(scores)
    count = scores.shape[1] - 1
    if kind == "soft":
        above = _above(scores, lambda difference: torch.sigmoid(difference / softness))
        # A negative does not meet itself, where the sigmoid of 0 is one half.
        return (above + 0.5).masked_fill(~others, 0.0)
    if kind == "percentile":
        # Equal scores share the first of their places.
        share = (1 + _above(scores, lambda difference: (difference > 0).to(scores))) / max(count, 1)
    else:
        highest = scores.masked_fill(~others, -torch.inf).amax(dim=1, keepdim=True)
        lowest = scores.masked_fill(~others, torch.inf).amin(dim=1, keepdim=True)
        share = (highest - scores) / (highest - lowest).clamp_min(torch.finfo(scores.dtype).tiny)
    # Rounding must not lift a place at a group's end into the next one.
    group = torch.ceil(share * groups - 1e-6).clamp(1, groups)
    return (group / groups * count).clamp_min(1.0).masked_fill(~others, 0.0)


def _above(scores: Tensor, compare: Callable[[Tensor], Tensor]) -> Tensor:
    """Sum a comparison of each negative's score with those of its anchor's negatives, a few anchors
    at a time.
    """
    others = negatives(scores)
    anchors = max(1, _ELEMENTS // max(scores.shape[1] ** 2, 1))
    return torch.cat(
        [
            # (anchor, j, k): s_ik over s_ij, without k = i
            compare(rows[:, None, :] - rows[:, :, None])
            .masked_fill(~mask[:, None, :], 0.0)
            .sum(dim=2)
            for rows, mask in zip(scores.split(anchors), others.split(anchors))
        ]
    )


def retention(ranks: Tensor, kind: Retention = "linear") -> Tensor:
    r"""Share of its mass, α(r) in [0, 1], that a negative of rank r keeps: 1 - r / B, 1 - r / M,
    e^{-r / M} or 1 / r.

    LS-RNS gives the linear one, 1 - r / B, as its example; the others are ours. ``"to_zero"``, 1 -
    r / M, leaves the last negative, and with groups or bins the last group, nothing.
    """
    others = negatives(ranks)
    count = max(ranks.shape[1] - 1, 1)
    if kind == "linear":
        kept = 1 - ranks / ranks.shape[1]
    elif kind == "to_zero":
        kept = (1 - ranks / count).clamp_min(0.0)
    elif kind == "exponential":
        kept = torch.exp(-ranks / count)
    else:
        kept = 1 / ranks.clamp_min(1.0)
    return kept.masked_fill(~others, 0.0)


def smoothed_distribution(scores: Tensor, kept: Tensor, temperature: float) -> Tensor:
    r"""Mass of each negative after retention, as a distribution over the anchor's negatives: its
    rows sum to 1.

    .. math:: \bar q_{ij} = \frac{\alpha(r_{ij})\, p_{ij}}{\sum_k \alpha(r_{ik})\, p_{ik}}, \qquad
        p_{ij} = \mathrm{softmax}_{j \ne i}(s_{ij} / \tau_s)

    It is uniform where nothing is kept, as with a single negative that is retained to zero.
    """
    others = negatives(scores)
    initial = (scores / temperature).masked_fill(~others, -torch.inf).softmax(dim=1)
    mass = (kept * initial).masked_fill(~others, 0.0)
    total = mass.sum(dim=1, keepdim=True)
    uniform = others.to(scores) / max(scores.shape[1] - 1, 1)
    return torch.where(total > 0, mass / total.clamp_min(torch.finfo(scores.dtype).tiny), uniform)


def negative_weights(distribution: Tensor) -> Tensor:
    r"""Weight of each negative in the asymmetric contrastive loss, w_{ij} = M \bar q_{ij}, of mean
    1 by row.
    """
    return distribution * (distribution.shape[1] - 1)


def asymmetric_contrastive(student: Tensor, weights: Tensor, temperature: float) -> Tensor:
    r"""InfoNCE whose negatives are weighted; that of SimCSE if all weights are 1. The weights'
    diagonal is ignored.

    .. math:: -\frac{1}{B} \sum_i \log
        \frac{e^{S_{ii} / \tau}}{e^{S_{ii} / \tau} + \sum_{j \ne i} w_{ij} e^{S_{ij} / \tau}}
    """
    ones = weights.masked_fill(~negatives(weights), 1.0)
    logits = student / temperature + ones.log()
    return -logits.log_softmax(dim=1).diagonal().mean()


def label_smoothing(
    student: Tensor,
    distribution: Tensor,
    temperature: float,
    epsilon: float,
) -> Tensor:
    r"""Cross-entropy of the student's softmax over all candidates against a smoothed target;
    SimCSE's loss for ε = 0.

    .. math:: -\frac{1}{B} \sum_i \Big[(1 - \epsilon) \log \pi_{ii}
        + \epsilon \sum_{j \ne i} \bar q_{ij} \log \pi_{ij}\Big], \qquad
        \pi_i = \mathrm{softmax}_j(S_{ij} / \tau)
    """
    log_share = (student / temperature).log_softmax(dim=1)
    smoothed = (distribution * log_share).sum(dim=1)
    return -((1 - epsilon) * log_share.diagonal() + epsilon * smoothed).mean()


def relevance(ranks: Tensor) -> Tensor:
    """Return the ranks as grades, 1 - (r - 1) / M: 1 for the first, more than 0 for the last."""
    return (1 - (ranks - 1) / max(ranks.shape[1] - 1, 1)).masked_fill(~negatives(ranks), 0.0)


def negatives(matrix: Tensor) -> Tensor:
    """Return where a sentence meets another one: false on the diagonal."""
    return ~torch.eye(*matrix.shape, dtype=torch.bool, device=matrix.device)
