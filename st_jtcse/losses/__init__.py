"""Losses for Sentence-Transformers' trainers; the names here are also the names recipes know.

A loss is found by its file in this folder, or by the entry point of an installed package: nothing
else names it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

# For editors and type checkers alone.
if TYPE_CHECKING:
    from st_jtcse.losses.cross_encoder_cosent import (
        CrossEncoderCoSENTLoss as CrossEncoderCoSENTLoss,
    )
    from st_jtcse.losses.jtcse import JTCSELoss as JTCSELoss
    from st_jtcse.losses.lsrns import LSRNSLoss as LSRNSLoss
    from st_jtcse.losses.rankcse import RankCSELoss as RankCSELoss
    from st_jtcse.losses.simcse import SimCSELoss as SimCSELoss


def __getattr__(name: str) -> Any:
    # The names of modules are not looked for: the losses import them.
    if name == "__all__" or name.endswith("Loss"):
        from st_jtcse.losses.catalogue import losses_here, own_loss

        if name == "__all__":
            return list(losses_here())
        found = own_loss(name)
        if found is not None:
            return found
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
