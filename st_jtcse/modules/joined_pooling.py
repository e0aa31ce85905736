"""What stands behind encoders that were joined, which pool themselves and give one row."""

from __future__ import annotations

from collections.abc import Iterable

from sentence_transformers.base.modules import Transformer
from sentence_transformers.sentence_transformer.modules import Normalize, Pooling
from torch import nn

from st_jtcse.errors import UserError
from st_jtcse.towers.modeling_tower_pooling import SumConfig


def rows_behind(encoder: Transformer) -> list[nn.Module]:
    """Return the modules behind joined encoders, whose sum is one row: where each is brought to
    length 1, so is the sum, and dot products stay cosines.
    """
    modules: list[nn.Module] = [Pooling(encoder.get_embedding_dimension(), "cls")]
    if encoder.model.config.normalize:
        modules.append(Normalize())
    return modules


def check_pooling(model: Iterable[nn.Module]) -> None:
    """Refuse a Pooling by anything but the first row behind joined encoders, which pool themselves:
    it would change nothing, and say otherwise.
    """
    first, *rest = model
    config = getattr(getattr(first, "model", None), "config", None)
    if not isinstance(config, SumConfig) or config.pooling == "none":
        return
    for module in rest:
        if isinstance(module, Pooling) and module.pooling_mode != "cls":
            raise UserError(
                f"A {config.model_type} pools its encoders itself, by {config.pooling!r}, and "
                f"gives one row: expected Pooling(..., 'cls') behind it, found "
                f"{module.pooling_mode!r}. Say how to pool when the encoders are joined, e.g. "
                "from_towers(..., pooling='mean')."
            )
