"""A trained model mixed with its start, as far as general sets ask for it."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Any

import torch

logger = logging.getLogger(__name__)

SHARES = (1.0, 0.8, 0.6, 0.4, 0.2)


def mix_until_retained(
    model: Any,
    start: Any,
    before: Mapping[str, float],
    most: float,
    score: Callable[[Any], Mapping[str, float]],
) -> float:
    r"""Mix a trained model's weights in place with its start's, until no set has lost more than is allowed.

    .. math:: \theta = (1 - s)\, \theta_{start} + s\, \theta_{trained}, \qquad s = 1, 0.8, 0.6, 0.4, 0.2, 0

    Args:
        model: The trained model; it gets the mixed weights.
        start: The model before training, of the same architecture.
        before: The start's scores x 100, by set.
        most: How many points each of them may fall.
        score: From a model to its scores on these sets.

    Returns:
        The largest share s of the trained weights that keeps within the bound; 0: none of them does.

    References:
        Wortsman et al., Robust fine-tuning of zero-shot models, CVPR 2022, Eq. 1.
    """
    first, last = ({name: value.clone() for name, value in own.state_dict().items()} for own in (start, model))
    for share in SHARES:
        model.load_state_dict(_mixed(first, last, share))
        after = score(model)
        if all(before[name] - after[name] <= most for name in before):
            return share
        lost = ", ".join(f"{name} {after[name] - before[name]:+.2f}" for name in before)
        logger.info("%.0f %% of the trained weights: %s, which may fall by %g", 100 * share, lost, most)
    model.load_state_dict(first)
    return 0.0


def _mixed(first: Mapping[str, torch.Tensor], last: Mapping[str, torch.Tensor], share: float) -> dict[str, Any]:
    # Buffers of whole numbers, such as positions, do not change in training.
    return {
        name: torch.lerp(first[name], value, share) if value.is_floating_point() and share < 1 else value
        for name, value in last.items()
    }
