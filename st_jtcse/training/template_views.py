"""Views that are prompts around a sentence, less what their mask token's state is without one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.nn.functional import pad

from st_jtcse.errors import UserError
from st_jtcse.losses.views import BIASES
from st_jtcse.modules.mask_prompts import template_lengths, written_around
from st_jtcse.recipe.sentence_blocks import ViewSpec

_PADDED = ("input_ids", "attention_mask", "token_type_ids")


class TemplateViews:
    r"""Tokenises each view within its own template, and each again with the sentence hidden from attention.

    .. math:: e_k(x) = h_{[MASK]}(t_k(x)) - \hat h_{[MASK]}(t_k)

    The second term, the template's bias, is the state of the mask token at its place where nothing attends to the
    sentence; a loss subtracts it by :func:`~st_jtcse.losses.views.encode_views`.

    Args:
        model: A model whose `template` is the prompt of views without a text.
        views: The views, all of them templates.
        column: Name of the sentences' column.

    Raises:
        UserError: The model has no template, or a text is none.

    References:
        Jiang et al., PromptBERT, EMNLP 2022, Section 4.3, template denoising.
    """

    def __init__(self, model: Any, views: Sequence[ViewSpec], column: str) -> None:
        tokenizer = model.tokenizer
        if tokenizer is None or not tokenizer.is_fast or template_lengths(tokenizer) is None:
            raise UserError(
                "The view 'template' needs a model that reads every text within one, found another; say model.template."
            )
        self._tokenizer, self._column = tokenizer, column
        own = tokenizer.backend_tokenizer.post_processor
        self._written = [own if view.text is None else written_around(tokenizer, view.text) for view in views]

    def tokens(self, collate: Callable[[list[dict[str, Any]]], dict[str, Any]], texts: list[list[str]]) -> Any:
        """Return the features of all views' sentences, and behind them those of their biases."""
        backend, parts, hidden = self._tokenizer.backend_tokenizer, [], []
        own = backend.post_processor
        try:
            for written, sentences in zip(self._written, texts, strict=True):
                backend.post_processor = written
                part = collate([{self._column: text} for text in sentences])
                before, after = template_lengths(self._tokenizer) or (0, 0)
                mask = part[f"{self._column}_attention_mask"]
                place = mask.cumsum(1)  # From 1 on.
                left = (place <= before) | (place > mask.sum(1, keepdim=True) - after)
                parts.append(part)
                hidden.append(mask * left)
        finally:
            backend.post_processor = own
        longest = max(mask.shape[1] for mask in hidden)
        batch = dict(parts[0])
        for name in _PADDED:
            key = f"{self._column}_{name}"
            if key in batch:
                filler = self._tokenizer.pad_token_id if name == "input_ids" else 0
                rows = [part[key] for part in parts]
                rows += hidden if name == "attention_mask" else rows
                batch[key] = torch.cat([pad(row, (0, longest - row.shape[1]), value=filler) for row in rows])
        return batch | {f"{self._column}_{BIASES}": True}
