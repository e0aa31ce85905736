"""The dropout rate of a model in training, wherever its code reads it."""

from __future__ import annotations

import copy
import re
from collections.abc import Iterable

from torch import nn
from transformers import PretrainedConfig, PreTrainedModel

# What transformers calls a rate: dropout, attention_dropout, attn_pdrop, hidden_dropout_prob.
_RATE = re.compile(r"(?:^|_)p?drop(?:out)?(?:_p|_prob|_rate)?$")


def set_dropout(model: nn.Module, rate: float) -> None:
    """Set every dropout rate of a model, which saves its own all the same.

    A rate stands in a Dropout module, in a number that an attention hands to a function, or in the
    configuration that a layer reads as it runs. Where it was 0 as the layer was made, an Identity
    may stand in the place of the Dropout.
    """
    for module in model.modules():
        if isinstance(module, nn.Dropout):
            module.p = rate
    for encoder in [module for module in model.modules() if isinstance(module, PreTrainedModel)]:
        # Other modules of Sentence-Transformers are saved with the rate that stands in them.
        for layer in encoder.modules():
            _set_rates(layer, rate)


def _set_rates(layer: nn.Module, rate: float) -> None:
    for name, child in list(layer.named_children()):
        if isinstance(child, nn.Identity) and _RATE.search(name):
            setattr(layer, name, nn.Dropout(rate))
    for name in _rates(layer, vars(layer)):
        setattr(layer, name, rate)
    config = getattr(layer, "config", None)
    # That of a whole model is saved.
    if isinstance(config, PretrainedConfig) and not isinstance(layer, PreTrainedModel):
        own = copy.copy(config)
        for name in _rates(own, vars(own)):
            setattr(own, name, rate)
        vars(layer)["config"] = own


def _rates(owner: object, names: Iterable[str]) -> list[str]:
    # Numbers only, where bool is a number to Python: ESM has a `token_dropout` of yes or no.
    return [
        name for name in names if _RATE.search(name) and type(getattr(owner, name)) in (int, float)
    ]
