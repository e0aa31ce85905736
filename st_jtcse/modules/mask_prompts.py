"""Prompts around a text whose embedding is the state of their mask token, in Sentence-Transformers'
own classes.
"""

from __future__ import annotations

import json
from typing import Any

from sentence_transformers.base.modules import Transformer
from sentence_transformers.sentence_transformer.modules import Pooling, WordWeights
from tokenizers.processors import TemplateProcessing
from torch import nn
from transformers import PreTrainedTokenizerFast

from st_jtcse.errors import UserError

TEXT, MASK = "[X]", "[MASK]"
_BEFORE, _AFTER = "before", "after"
_TOKENS = (
    "unk_token",
    "sep_token",
    "pad_token",
    "cls_token",
    "mask_token",
    "bos_token",
    "eos_token",
)


def mask_prompt(encoder: Transformer, template: str) -> list[nn.Module]:
    r"""Have an encoder read every text within a template, and return the modules that pool its mask
    token's state.

    .. math:: e(x) = h_{[MASK]}(\text{before} \; x \; \text{after})

    The tokenizer writes the template, and cuts a text that is too long for both. Mean pooling with
    the weight 1 on the mask token and 0 on others gives its state, so that the saved model loads
    without this package. A text that says the mask token itself is averaged with it.

    Args:
        encoder: The encoder; its tokenizer is replaced.
        template: ``[X]`` is the text, ``[MASK]`` the mask token, e.g. ``This sentence : "[X]" means
            [MASK].``

    Raises:
        UserError: There is no such token in the vocabulary, or the template lacks one of the two.

    References:
        Jiang et al., PromptBERT, EMNLP 2022.
    """
    tokenizer: Any = encoder.tokenizer
    if tokenizer.mask_token_id is None or not tokenizer.is_fast:
        raise UserError(
            "A template needs a mask token in the vocabulary of a fast tokenizer, found none; name "
            "a pooling, e.g. cls."
        )
    backend = type(tokenizer.backend_tokenizer).from_str(tokenizer.backend_tokenizer.to_str())
    backend.post_processor = written_around(tokenizer, template)
    # Of no model type: those tokenizers rewrite what is around a text when they are loaded.
    encoder.processor = PreTrainedTokenizerFast(
        tokenizer_object=backend,
        model_max_length=tokenizer.model_max_length,
        padding_side=tokenizer.padding_side,
        model_input_names=tokenizer.model_input_names,
        **_special_tokens(tokenizer),
    )
    words = tokenizer.convert_ids_to_tokens(range(len(tokenizer)))
    weights = WordWeights(words, {tokenizer.mask_token: 1.0}, unknown_word_weight=0.0)
    return [weights.requires_grad_(False), Pooling(encoder.get_embedding_dimension(), "mean")]


def _special_tokens(tokenizer: Any) -> dict[str, Any]:
    tokens = {name: getattr(tokenizer, name, None) for name in _TOKENS}
    return {name: token for name, token in tokens.items() if token is not None}


def written_around(tokenizer: Any, template: str) -> TemplateProcessing:
    """Return what writes a template around each text, in place of what the tokenizer has; raises
    UserError.
    """
    if template.count(TEXT) != 1 or template.count(MASK) != 1:
        raise UserError(
            f"expected a template with {TEXT} and {MASK}, each once, found {template!r}. Correct "
            "it."
        )
    parts = template.replace(MASK, tokenizer.mask_token).split(TEXT)
    before, after = (tokenizer(part, add_special_tokens=False)["input_ids"] for part in parts)
    first, *_, last = tokenizer("")["input_ids"]
    pieces = {_BEFORE: [first, *before], _AFTER: [*after, last]}
    return TemplateProcessing(
        single=f"{_BEFORE} $A {_AFTER}",
        pair=f"{_BEFORE} $A $B {_AFTER}",
        special_tokens=[
            {"id": name, "ids": ids, "tokens": tokenizer.convert_ids_to_tokens(ids)}
            for name, ids in pieces.items()
        ],
    )


def template_lengths(tokenizer: Any) -> tuple[int, int] | None:
    """Return how many tokens a tokenizer's template writes before and after a text; None if it has
    none.
    """
    written = json.loads(tokenizer.backend_tokenizer.to_str())["post_processor"] or {}
    pieces = written.get("special_tokens")
    if not isinstance(pieces, dict) or pieces.keys() != {_BEFORE, _AFTER}:
        return None
    return len(pieces[_BEFORE]["ids"]), len(pieces[_AFTER]["ids"])
