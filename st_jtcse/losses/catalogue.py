"""Finds losses by name: ours, installed packages' by entry point, and Sentence-Transformers'.

What is only asked about a loss may be read from its source (`st_jtcse.unimported`).
"""

from __future__ import annotations

import inspect
import sys
from contextlib import suppress
from dataclasses import replace
from functools import cache
from pkgutil import iter_modules
from typing import TYPE_CHECKING, Any

from st_jtcse.errors import UserError
from st_jtcse.losses.declaration import LossDeclaration, defaults_of
from st_jtcse.plugins import imported, installed
from st_jtcse.unimported import classes_of, current, module, must_import
from st_jtcse.wording import unknown

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

    from torch import nn

# A package that has losses of its own names them under this group.
ENTRY_POINTS = "st_jtcse.losses"
_THEIR_MODULES = {
    False: "sentence_transformers.sentence_transformer.losses",
    True: "sentence_transformers.cross_encoder.losses",
}

_TWO, _TWO_OR_MORE, _THREE = (2, 2), (2, None), (3, 3)
_BY_CLASS = LossDeclaration(labels="classes", texts=(1, 1), in_batch=True)
_RANKING = LossDeclaration(views="given", labels="none", texts=_TWO_OR_MORE, in_batch=True)
_SYMMETRIC = replace(_RANKING, texts=_TWO)
_GUIDED = LossDeclaration(beyond="a guide, which is Python code")
_WRAPPER = LossDeclaration(beyond="another loss, which is Python code")
_DISTILLING = LossDeclaration(sentences=True, teachers="sum", cards={(): "distilled"})
_THEIRS = {
    "AdaptiveLayerLoss": _WRAPPER,
    "AnglELoss": LossDeclaration(labels="scores", texts=_TWO, in_batch=True),
    "BatchAllTripletLoss": _BY_CLASS,
    "BatchHardSoftMarginTripletLoss": _BY_CLASS,
    "BatchHardTripletLoss": _BY_CLASS,
    "BatchSemiHardTripletLoss": _BY_CLASS,
    "CachedGISTEmbedLoss": _GUIDED,
    "CachedMultipleNegativesRankingLoss": _RANKING,
    "CachedMultipleNegativesSymmetricRankingLoss": _SYMMETRIC,
    "CoSENTLoss": LossDeclaration(labels="scores", texts=_TWO, in_batch=True, cards={(): "cosent"}),
    "ContrastiveLoss": LossDeclaration(labels="classes", texts=_TWO, classes=2),
    "ContrastiveTensionLoss": LossDeclaration(labels="none", texts=_TWO),
    "ContrastiveTensionLossInBatchNegatives": LossDeclaration(
        sentences=True, views="made", in_batch=True
    ),
    "CosineSimilarityLoss": LossDeclaration(labels="scores", texts=_TWO),
    "DenoisingAutoEncoderLoss": LossDeclaration(
        views="given",
        labels="none",
        texts=_TWO,
        tokens=True,
    ),
    "DistillKLDivLoss": LossDeclaration(beyond="a list of scores per row"),
    "GISTEmbedLoss": _GUIDED,
    "GlobalOrthogonalRegularizationLoss": LossDeclaration(in_batch=True),
    "MSELoss": _DISTILLING,
    "EmbedDistillLoss": _DISTILLING,
    "MarginMSELoss": LossDeclaration(labels="scores", texts=_THREE),
    "Matryoshka2dLoss": _WRAPPER,
    "MatryoshkaLoss": _WRAPPER,
    "MegaBatchMarginLoss": replace(_SYMMETRIC, views=None),
    "MultipleNegativesRankingLoss": _RANKING,
    "MultipleNegativesSymmetricRankingLoss": _SYMMETRIC,
    "OnlineContrastiveLoss": LossDeclaration(labels="classes", texts=_TWO, classes=2),
    "SoftmaxLoss": LossDeclaration(labels="classes", texts=_TWO, classes="num_labels"),
    "TripletLoss": LossDeclaration(labels="none", texts=_THREE),
}
_OF_LISTS = LossDeclaration(
    cross_encoder=True,
    beyond="a list of documents per query, and a list of their scores",
)
_OF_PAIRS = LossDeclaration(cross_encoder=True, labels="none", texts=_TWO_OR_MORE, in_batch=True)
_THEIRS_OF_CROSS_ENCODERS = {
    "ADRMSELoss": _OF_LISTS,
    "BinaryCrossEntropyLoss": LossDeclaration(cross_encoder=True, labels="scores", texts=_TWO),
    "CachedMultipleNegativesRankingLoss": _OF_PAIRS,
    "CrossEntropyLoss": LossDeclaration(
        cross_encoder=True,
        labels="classes",
        texts=_TWO,
        classes="outputs",
    ),
    "LambdaLoss": _OF_LISTS,
    "ListMLELoss": _OF_LISTS,
    "ListNetLoss": _OF_LISTS,
    "MSELoss": LossDeclaration(cross_encoder=True, labels="scores", texts=_TWO),
    "MarginMSELoss": LossDeclaration(cross_encoder=True, labels="scores", texts=_THREE),
    "MultipleNegativesRankingLoss": _OF_PAIRS,
    "PListMLELoss": _OF_LISTS,
    "RankNetLoss": _OF_LISTS,
}


def losses_here() -> dict[str, type[nn.Module]]:
    """Return the losses of this package by name: the classes of this folder's files that declare
    what they are.
    """
    return _losses_here(current())


@cache  # Apart for those that are read.
def _losses_here(read: object | None) -> dict[str, type[nn.Module]]:
    found = {}
    for file in iter_modules(sys.modules[__package__].__path__):
        for name, value in classes_of(module(f"{__package__}.{file.name}")).items():
            if hasattr(value, "declaration"):
                found[name] = value
    return dict(sorted(found.items()))


def loss_names(cross_encoder: bool = False) -> list[str]:
    """Return what a recipe can name, of cross-encoders or of all others: ours, installed packages',
    theirs.
    """
    own = [
        name
        for name, loss in _declared_losses().items()
        if declaration_of(loss).cross_encoder == cross_encoder
    ]
    offered = [
        name
        for name, loss in _their_classes(cross_encoder).items()
        if not declaration_of(loss).beyond
    ]
    broken = installed(ENTRY_POINTS).keys() - _declared_losses()
    return list(dict.fromkeys([*own, *sorted(broken), *offered]))


def loss_class(name: str, cross_encoder: bool = False) -> type[nn.Module]:
    """Return the loss of a name; raises UserError where it is unknown or cannot be imported."""
    found = own_loss(name)
    if found is None:
        found = _their_class(name, cross_encoder)
    if found is None or declaration_of(found).cross_encoder != cross_encoder:
        raise UserError(unknown("the name of a loss", name, loss_names(cross_encoder)))
    return found


def declaration_of(loss: type[nn.Module]) -> LossDeclaration:
    """Return what a loss is: what its class says, or for those of Sentence-Transformers the table
    here.
    """
    declared: LossDeclaration | None = getattr(loss, "declaration", None)
    if declared is not None:
        return replace(declared, defaults=defaults_of(loss))
    if _THEIR_MODULES[True] in loss.__module__:
        return _THEIRS_OF_CROSS_ENCODERS.get(loss.__name__, LossDeclaration(cross_encoder=True))
    return _THEIRS.get(loss.__name__, LossDeclaration())


def losses_that(fact: str) -> list[str]:
    """Return the names of the losses whose declaration has a fact, such as ``"teachers"``."""
    own = {name: declaration_of(loss) for name, loss in _declared_losses().items()}
    return [name for name, facts in (own | _THEIRS).items() if getattr(facts, fact)]


def own_loss(name: str) -> type[nn.Module] | None:
    """Return a loss of this package or of an installed one; None where none has the name.

    Raises UserError where it cannot be imported.
    """
    found = losses_here().get(name)
    points = installed(ENTRY_POINTS)
    if found is None and name in points:
        return _installed(points[name])
    return found


def _installed(point: EntryPoint) -> type[nn.Module]:
    """Return the loss of an entry point; another package's is always imported."""
    if current() is not None and point.module.startswith(f"{__package__.partition('.')[0]}."):
        found: type[nn.Module] = getattr(module(point.module), point.attr)
    else:
        must_import()
        found = imported(point, "a loss")
    return found


def _declared_losses() -> dict[str, type[nn.Module]]:
    """Return this package's losses and those of installed ones that can be imported, sorted."""
    found = dict(losses_here())
    for name in installed(ENTRY_POINTS):
        with suppress(UserError):
            loss = own_loss(name)
            if loss is not None:
                found[name] = loss
    return dict(sorted(found.items()))


def _their_classes(cross_encoder: bool) -> dict[str, type[nn.Module]]:
    """Return Sentence-Transformers' losses by name."""
    found = {}
    for name in module(_THEIR_MODULES[cross_encoder]).__all__:
        loss = _their_class(name, cross_encoder)
        if loss is not None:
            found[name] = loss
    return found


def _their_class(name: str, cross_encoder: bool) -> type[nn.Module] | None:
    theirs = module(_THEIR_MODULES[cross_encoder])
    found: Any = getattr(theirs, name) if name in theirs.__all__ else None
    # Their __all__ also lists what losses are made of: distances, weightings, a data loader. A loss
    # is given its model.
    if not inspect.isclass(found) or not issubclass(found, module("torch").nn.Module):
        return None
    loss: Any = found
    if "model" in inspect.signature(found.__init__).parameters:
        return loss
    return None
