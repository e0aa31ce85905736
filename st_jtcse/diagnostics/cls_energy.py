"""E_CLS: how much of a layer's attention context lies in the CLS row."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from st_jtcse.diagnostics.encoders import Encoder, passes


@dataclass(frozen=True)
class CLSEnergy:
    """E_CLS of the N layers of an encoder, over sentences."""

    mean: NDArray[np.float64]  # (N,)
    deviation: NDArray[np.float64]  # standard deviation over the sentences, (N,)


def cls_energy(context: Tensor, mask: Tensor) -> Tensor:
    r"""Norm of the CLS row of an attention context over the norm of all other rows together.

    .. math:: E_{CLS} = \frac{\lVert C_{cls} \rVert}{\lVert C_{rest} \rVert_F}, \qquad C = SA \, V

    C is what attention hands to the layer's output projection, all heads side by side. The other rows are those of
    every other token, SEP included, without padding; so E_CLS falls with the length of a sentence, about as
    :math:`1 / \sqrt{T - 1}`, and only encoders that read the same sentences can be compared.

    Args:
        context: C, (B, T, H) float; the CLS row is the first.
        mask: True for tokens, False for padding, (B, T).

    Returns:
        (B,) float64.

    References:
        JTCSE (Zong et al.), Eq. 6.
    """
    squares = (context.double() ** 2).sum(dim=-1) * mask
    return (squares[:, 0] / squares[:, 1:].sum(dim=1)).sqrt()  # JTCSE Eq. 6


def cls_energy_by_layer(encoder: Encoder, sentences: Sequence[str]) -> CLSEnergy:
    """Return E_CLS of every layer of an encoder."""
    found = [
        torch.stack([cls_energy(context, batch.mask) for context in batch.contexts], dim=1).cpu()
        for batch in passes(encoder, sentences)
    ]
    energies = torch.cat(found).numpy()
    return CLSEnergy(energies.mean(axis=0), energies.std(axis=0))
