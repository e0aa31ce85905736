"""Ranks of in-batch negatives by a frozen scorer, and what LS-RNS makes of them, as pure functions of tensors.

Matrices are (B, B): row i is an anchor, column j ≠ i one of its M = B - 1 negatives. The diagonal is no negative; it
is 0 in every result. S, the student's, compares view a of sentence i with view b of sentence j; losses are scalars.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import torch
from torch import Tensor

Ranks = Literal["soft", "percentile", "bins"]
Retention = Literal["linear", "exponential", "reciprocal"]
# Comparisons are B^3: so many are held at once.
_ELEMENTS = 1 << 24


def negative_ranks(scores: Tensor, kind: Ranks = "soft", softness: float = 0.05, groups: int = 10) -> Tensor:
    r"""Rank r of each negative among its anchor's, (B, B), in 1..M, 1 the most similar.

    ``"soft"``: a smooth rank, in which equal scores are equal:

    .. math:: r_{ij} = 1 + \sum_{k \ne i, j} \sigma\big((s_{ik} - s_{ij}) / \delta\big)

    ``"percentile"``: the places of the order in groups of equal size, each with its last place as rank.
    ``"bins"``: the range from the anchor's highest to its lowest score in bins of equal width, likewise.

    Args:
        scores: s, the scorer's similarities, (B, B).
        kind: The rank function.
        softness: δ > 0, in units of similarity.
        groups: Number of groups or bins.

    References:
        LS-RNS, rank functions; the formulas are our reading.
    """
    others = negatives(scores)
    count = len(scores) - 1
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
    """Sum a comparison of each negative's score with those of its anchor's negatives, a few anchors at a time."""
    others = negatives(scores)
    anchors = max(1, _ELEMENTS // max(scores.numel(), 1))
    return torch.cat(
        [
            # (anchor, j, k): s_ik over s_ij, without k = i
            compare(rows[:, None, :] - rows[:, :, None]).masked_fill(~mask[:, None, :], 0.0).sum(dim=2)
            for rows, mask in zip(scores.split(anchors), others.split(anchors))
        ]
    )


def retention(ranks: Tensor, kind: Retention = "linear") -> Tensor:
    r"""Share of its mass that a negative of rank r keeps: 1 - r / M, e^{-r / M} or 1 / r, falling with r.

    Args:
        ranks: r, (B, B).
        kind: ``"linear"``, ``"exponential"`` or ``"reciprocal"``.

    Returns:
        α(r), (B, B), in [0, 1].

    References:
        LS-RNS gives the linear one as its example; the others are ours.
    """
    others = negatives(ranks)
    count = max(len(ranks) - 1, 1)
    if kind == "linear":
        kept = (1 - ranks / count).clamp_min(0.0)
    elif kind == "exponential":
        kept = torch.exp(-ranks / count)
    else:
        kept = 1 / ranks.clamp_min(1.0)
    return kept.masked_fill(~others, 0.0)


def smoothed_distribution(scores: Tensor, kept: Tensor, temperature: float) -> Tensor:
    r"""Mass of each negative after retention, as a distribution over the anchor's negatives.

    .. math:: \bar q_{ij} = \frac{\alpha(r_{ij})\, p_{ij}}{\sum_k \alpha(r_{ik})\, p_{ik}}, \qquad
        p_{ij} = \mathrm{softmax}_{j \ne i}(s_{ij} / \tau_s)

    Args:
        scores: s, (B, B).
        kept: α(r), (B, B).
        temperature: τ_s > 0.

    Returns:
        (B, B); rows sum to 1. Uniform where nothing is kept, as with a single negative under linear retention.

    References:
        LS-RNS, smoothed target; normalising it is our reading.
    """
    others = negatives(scores)
    initial = (scores / temperature).masked_fill(~others, -torch.inf).softmax(dim=1)
    mass = (kept * initial).masked_fill(~others, 0.0)
    total = mass.sum(dim=1, keepdim=True)
    uniform = others.to(scores) / max(len(scores) - 1, 1)
    return torch.where(total > 0, mass / total.clamp_min(torch.finfo(scores.dtype).tiny), uniform)


def negative_weights(distribution: Tensor) -> Tensor:
    r"""Weight of each negative in the asymmetric contrastive loss, w_{ij} = M \bar q_{ij}, (B, B), of mean 1 by row.

    Args:
        distribution: From :func:`smoothed_distribution`, (B, B).

    References:
        LS-RNS, asymmetric contrastive loss; scaling to mean 1 is our reading.
    """
    return distribution * (len(distribution) - 1)


def asymmetric_contrastive(student: Tensor, weights: Tensor, temperature: float) -> Tensor:
    r"""InfoNCE whose negatives are weighted.

    .. math:: -\frac{1}{B} \sum_i \log
        \frac{e^{S_{ii} / \tau}}{e^{S_{ii} / \tau} + \sum_{j \ne i} w_{ij} e^{S_{ij} / \tau}}

    Args:
        student: S, (B, B).
        weights: w, (B, B); the diagonal is ignored.
        temperature: τ > 0.

    Returns:
        The loss; that of SimCSE if all weights are 1.

    References:
        LS-RNS, contrastive loss with ranked negatives.
    """
    ones = weights.masked_fill(~negatives(weights), 1.0)
    logits = student / temperature + ones.log()
    return -logits.log_softmax(dim=1).diagonal().mean()


def label_smoothing(student: Tensor, distribution: Tensor, temperature: float, epsilon: float) -> Tensor:
    r"""Cross-entropy of the student's softmax over all candidates against a smoothed target.

    .. math:: -\frac{1}{B} \sum_i \Big[(1 - \epsilon) \log \pi_{ii}
        + \epsilon \sum_{j \ne i} \bar q_{ij} \log \pi_{ij}\Big], \qquad \pi_i = \mathrm{softmax}_j(S_{ij} / \tau)

    Args:
        student: S, (B, B).
        distribution: \bar q, (B, B).
        temperature: τ > 0.
        epsilon: ε in [0, 1), the mass of the negatives.

    Returns:
        The loss; that of SimCSE for ε = 0.

    References:
        LS-RNS, label-smoothing loss.
    """
    log_share = (student / temperature).log_softmax(dim=1)
    smoothed = (distribution * log_share).sum(dim=1)
    return -((1 - epsilon) * log_share.diagonal() + epsilon * smoothed).mean()


def relevance(ranks: Tensor) -> Tensor:
    """Return the ranks as grades, 1 - (r - 1) / M, (B, B): 1 for the first, more than 0 for the last."""
    return (1 - (ranks - 1) / max(len(ranks) - 1, 1)).masked_fill(~negatives(ranks), 0.0)


def negatives(matrix: Tensor) -> Tensor:
    """Return where a sentence meets another one: (B, B), false on the diagonal."""
    return ~torch.eye(len(matrix), dtype=torch.bool, device=matrix.device)
