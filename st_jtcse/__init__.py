"""Better sentence embeddings from your own text: Sentence-Transformers recipes, losses and modules
that adapt, train and measure models.

Importing the package registers the twin and the ensemble encoder with transformers, now or as soon
as it is imported, so that ``SentenceTransformer(path)`` loads a saved one without
``trust_remote_code``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from st_jtcse.registration import register_towers

if TYPE_CHECKING:
    from st_jtcse.towers import (
        EnsembleEncoderConfig,
        EnsembleEncoderModel,
        TwinEncoderConfig,
        TwinEncoderModel,
    )

    __version__: str

__all__ = [
    "EnsembleEncoderConfig",
    "EnsembleEncoderModel",
    "TwinEncoderConfig",
    "TwinEncoderModel",
    "__version__",
]

register_towers()


def __getattr__(name: str) -> Any:
    # The towers import torch, which takes seconds; who names one of them has that time.
    if name == "__version__":
        from importlib.metadata import version

        return version("st-jtcse")
    if name in __all__:
        from st_jtcse import towers

        return getattr(towers, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
