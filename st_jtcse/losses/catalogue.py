"""Losses by name, in a closed world: ours, installed packages' by entry point, and those of Sentence-Transformers."""

from __future__ import annotations

from importlib.metadata import EntryPoint, entry_points

from sentence_transformers.cross_encoder import losses as theirs_of_cross_encoders
from sentence_transformers.sentence_transformer import losses as theirs
from torch import nn

from st_jtcse import losses as ours
from st_jtcse.errors import UserError
from st_jtcse.losses.declaration import LossDeclaration
from st_jtcse.wording import unknown

# A package that has losses of its own names them under this group: a recipe alone never imports code.
ENTRY_POINTS = "st_jtcse.losses"

_THEIRS = {
    "CoSENTLoss": LossDeclaration(labels="scores", in_batch=True, cards={(): "cosent"}),
    "AnglELoss": LossDeclaration(labels="scores", in_batch=True),
    "CosineSimilarityLoss": LossDeclaration(labels="scores"),
    "SoftmaxLoss": LossDeclaration(labels="classes", classes="num_labels"),
    "ContrastiveLoss": LossDeclaration(labels="classes", classes=2),
    "OnlineContrastiveLoss": LossDeclaration(labels="classes", classes=2),
    "TripletLoss": LossDeclaration(labels="none"),
    "MultipleNegativesRankingLoss": LossDeclaration(views="given", in_batch=True),
    "MSELoss": LossDeclaration(sentences=True, teachers="sum", cards={(): "distilled"}),
    "EmbedDistillLoss": LossDeclaration(sentences=True, teachers="sum", cards={(): "distilled"}),
}
_THEIRS_OF_CROSS_ENCODERS = {
    "MSELoss": LossDeclaration(cross_encoder=True, labels="scores"),
    "BinaryCrossEntropyLoss": LossDeclaration(cross_encoder=True, labels="scores"),
    "CrossEntropyLoss": LossDeclaration(cross_encoder=True, labels="classes", classes="outputs"),
}


def loss_names(cross_encoder: bool = False) -> list[str]:
    """Return the names of all losses of cross-encoders, or of all others: ours, installed packages', theirs."""
    own = [name for name in ours.__all__ if getattr(ours, name).declaration.cross_encoder == cross_encoder]
    return list(dict.fromkeys([*own, *_installed(), *_their_classes(cross_encoder)]))


def loss_class(name: str, cross_encoder: bool = False) -> type[nn.Module]:
    """Return the loss of that name; raises UserError where there is none, or its package cannot be imported."""
    found: type[nn.Module] | None = getattr(ours, name, None) if name in ours.__all__ else None
    if found is None and (point := _installed().get(name)):
        try:
            found = point.load()
        except Exception as error:  # Another package's code fails as it likes.
            raise UserError(
                f"expected a loss that can be imported, found {point.name!r} at {point.value!r}, which fails with "
                f"{type(error).__name__}: {error}. Mend or uninstall the package that names it."
            ) from error
    found = found or _their_classes(cross_encoder).get(name)
    if found is None or declaration_of(found).cross_encoder != cross_encoder:
        raise UserError(unknown("the name of a loss", name, loss_names(cross_encoder)))
    return found


def declaration_of(loss: type[nn.Module]) -> LossDeclaration:
    """Return what a loss is: what its class says, or for those of Sentence-Transformers the table here."""
    declared: LossDeclaration | None = getattr(loss, "declaration", None)
    if declared is not None:
        return declared
    if theirs_of_cross_encoders.__name__ in loss.__module__:
        return _THEIRS_OF_CROSS_ENCODERS.get(loss.__name__, LossDeclaration(cross_encoder=True))
    return _THEIRS.get(loss.__name__, LossDeclaration())


def taught_by_teachers() -> list[str]:
    """Return the names of the losses that learn from teachers."""
    own = [name for name in ours.__all__ if getattr(ours, name).declaration.teachers]
    return [*own, *(name for name, declared in _THEIRS.items() if declared.teachers)]


def _installed() -> dict[str, EntryPoint]:
    return {point.name: point for point in entry_points(group=ENTRY_POINTS)}


def _their_classes(cross_encoder: bool) -> dict[str, type[nn.Module]]:
    module = theirs_of_cross_encoders if cross_encoder else theirs
    # Their __all__ also lists enumerations of distances and a data loader.
    listed = {name: getattr(module, name) for name in module.__all__}
    return {name: found for name, found in listed.items() if isinstance(found, type) and issubclass(found, nn.Module)}
