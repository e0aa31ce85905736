"""Shuffled group whitening of a batch's embeddings, which gives one sentence many versions."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from st_jtcse.errors import UserError

# Of the largest variance of a group: what is below it counts as so much.
_SMALLEST = 1e-6


def shuffled_group_whitening(rows: Tensor, groups: int, order: Tensor) -> Tensor:
    r"""Whiten embeddings within groups of their components, which an order puts together.

    .. math:: y_{ig} = \Sigma_g^{-1/2} (x_{ig} - \mu_g), \qquad
        \Sigma_g = \frac{1}{B} \sum_i (x_{ig} - \mu_g) (x_{ig} - \mu_g)^\top

    :math:`x_{ig}` are the H / G components of row i in group g, and the root is the symmetric one
    (ZCA), so that each group of y has mean 0 and the identity as covariance. A direction in which
    the rows do not vary stays 0. Gradients flow through mean and covariance.

    Args:
        rows: (B, H).
        groups: G, a divisor of H.
        order: (H,), a permutation of the components; the first H / G of it are the first group.

    Returns:
        Tensor: (B, H), the components where they were; in float32 at least.

    Raises:
        UserError: G does not divide H.

    References:
        Zhuo et al., WhitenedCSE, ACL 2023, shuffled group whitening.
    """
    size = rows.shape[1]
    if size % groups:
        told = (
            f"whitening_groups: expected a divisor of the embedding's size, {size}, found "
            f"{groups}. Choose another."
        )
        raise UserError(told)
    with torch.autocast(rows.device.type, enabled=False):
        own = rows.to(torch.promote_types(rows.dtype, torch.float32))
        grouped = own[:, order].unflatten(1, (groups, -1)).transpose(0, 1)
        centred = grouped - grouped.mean(dim=1, keepdim=True)
        root: Tensor = _InverseRoot.apply(centred.mT @ centred / len(rows))
        return (centred @ root).transpose(0, 1).flatten(1)[:, order.argsort()]


class _InverseRoot(torch.autograd.Function):
    r"""The symmetric :math:`\Sigma^{-1/2}` of each matrix of a batch, (G, D, D).

    The gradient is written out, for that of the eigenvectors is not defined where two eigenvalues
    are equal.
    """

    @staticmethod
    def forward(ctx: Any, covariance: Tensor) -> Tensor:
        variances, directions = torch.linalg.eigh(covariance)
        least = (_SMALLEST * variances[:, -1:]).clamp_min(_SMALLEST**2)
        roots = variances.clamp_min(least).sqrt()
        ctx.save_for_backward(roots, directions)
        return (directions / roots.unsqueeze(1)) @ directions.mT

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        roots, directions = ctx.saved_tensors
        one, other = roots.unsqueeze(1), roots.unsqueeze(2)
        # (f(p) - f(q)) / (p - q) of f(p) = 1 / sqrt(p), also for p = q.
        slopes = -1 / (one * other * (one + other))
        inside = directions.mT @ (gradient + gradient.mT) @ directions / 2
        return directions @ (slopes * inside) @ directions.mT
