"""Losses for Sentence-Transformers' trainers; the names here are also the names recipes know.

A loss is found by its file in this folder: nothing else names it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

# For editors and type checkers alone.
if TYPE_CHECKING:
    from st_jtcse.losses.arccse import ArcCSELoss as ArcCSELoss
    from st_jtcse.losses.cross_encoder_cosent import (
        CrossEncoderCoSENTLoss as CrossEncoderCoSENTLoss,
    )
    from st_jtcse.losses.diffcse import DiffCSELoss as DiffCSELoss
    from st_jtcse.losses.esimcse import ESimCSELoss as ESimCSELoss
    from st_jtcse.losses.infocse import InfoCSELoss as InfoCSELoss
    from st_jtcse.losses.iscse import ISCSELoss as ISCSELoss
    from st_jtcse.losses.jtcse import JTCSELoss as JTCSELoss
    from st_jtcse.losses.lsrns import LSRNSLoss as LSRNSLoss
    from st_jtcse.losses.rankcse import RankCSELoss as RankCSELoss
    from st_jtcse.losses.simcse import SimCSELoss as SimCSELoss
    from st_jtcse.losses.sncse import SNCSELoss as SNCSELoss
    from st_jtcse.losses.whitenedcse import WhitenedCSELoss as WhitenedCSELoss


def __getattr__(name: str) -> Any:
    # The names of modules are not looked for: the losses import them.
    if name == "__all__" or name.endswith("Loss"):
        from st_jtcse.losses.catalogue import losses_here

        found = losses_here()
        if name == "__all__":
            return list(found)
        if name in found:
            return found[name]
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
