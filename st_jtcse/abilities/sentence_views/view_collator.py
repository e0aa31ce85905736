"""The views of every sentence of a batch, made of its words before the tokeniser, of its tokens
behind it, or by it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain
from random import Random
from typing import Any

import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import Transformer
from sentence_transformers.sentence_transformer.data_collator import SentenceTransformerDataCollator
from torch import Tensor, nn
from torch.nn.functional import pad
from transformers import (
    PreTrainedModel,
    TrainerCallback,
    TrainerControl,
    TrainerState,
    TrainingArguments,
)

from st_jtcse.abilities.sentence_views.view_blocks import ViewSpec
from st_jtcse.abilities.sentence_views.view_kinds import TokenBatch, chosen
from st_jtcse.errors import UserError
from st_jtcse.losses.views import BIASES, BOTH_VIEWS, STARTS
from st_jtcse.modules.mask_prompts import template_lengths, written_around
from st_jtcse.recipe.schema import StageSpec

COLUMN, NEIGHBOUR, SECOND = "sentence", "neighbour", "view_b"
# Of features: which components of each token's input embedding are kept, (B, T, H).
_KEPT = "kept_components"
_PADDED = ("input_ids", "attention_mask", "token_type_ids")


@dataclass(eq=False)
class ViewCollator(SentenceTransformerDataCollator, TrainerCallback):
    """ST's collator, which gives a loss the views of each sentence: :math:`v_k(x) = f_k(x; seed,
    epoch, k, x)`.

    A view follows from these alone, so that it is the same in a resumed run and in every process.
    The trainer takes it as a callback too, which tells it the epoch.

    Args:
        model: The model whose tokens they are.
        views: The two views, and the soft negative where the loss takes one.
        seed: Seed of the draws.
        templates: What tokenises views that are templates.
        in_one: Whether the loss takes one column of both, by
            :func:`~st_jtcse.losses.views.encode_views`; else two.
    """

    model: Any = None
    views: Sequence[ViewSpec] = ()
    seed: int = 0
    templates: TemplateViews | None = None
    in_one: bool = True

    def __post_init__(self) -> None:
        # Shared: a data worker that lives longer than an epoch is to see the next one.
        self._epoch = torch.zeros((), dtype=torch.long).share_memory_()

    def on_epoch_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kw: Any
    ) -> None:
        """Draw anew."""
        self._epoch.fill_(int(state.epoch or 0))

    def __call__(self, features: list[dict[str, Any]]) -> dict[str, Any]:
        """Return a batch of labels and both views' tokens."""
        labels = [
            {key: row[key] for key in row if key not in (COLUMN, NEIGHBOUR)} for row in features
        ]
        batch: dict[str, Any] = super().__call__(labels)
        views = []
        for number, view in enumerate(self.views):
            views.append([self._drawn(number, view, row) for row in features])
        if self.templates is not None:
            batch |= self.templates.tokens(
                super().__call__, [[text for *_, text in view] for view in views]
            )
            return batch | {f"{COLUMN}_{BOTH_VIEWS}": True}
        if self.in_one:
            return batch | self._tokens([*chain(*views)]) | {f"{COLUMN}_{BOTH_VIEWS}": True}
        second = self._tokens(views[1])
        return (
            batch
            | self._tokens(views[0])
            | {SECOND + key.removeprefix(COLUMN): second[key] for key in second}
        )

    def _drawn(
        self, number: int, view: ViewSpec, row: dict[str, Any]
    ) -> tuple[ViewSpec, Random, str]:
        text, kind = row[COLUMN], view.kind
        draw = Random(f"{self.seed}/{int(self._epoch)}/{number}/{text}")
        if view.type == "neighbour":
            text = row[NEIGHBOUR]
        if kind.changes == "words" and len(text.split()) >= kind.fewest:
            text = " ".join(kind.words(text.split(), view.portion, draw))
        return view, draw, text

    def _tokens(self, drawn: Sequence[tuple[ViewSpec, Random, str]]) -> dict[str, Any]:
        batch: dict[str, Any] = super().__call__([{COLUMN: text} for _, _, text in drawn])
        if all(view.kind.changes != "tokens" for view in self.views):
            return batch
        width = _tables(self.model)[0].embedding_dim
        mask_id = self.model.tokenizer.mask_token_id
        tokens = TokenBatch(batch[f"{COLUMN}_input_ids"], width, mask_id)
        for (view, draw, _), (row, places) in zip(drawn, self._words_of(batch)):
            kind, n = view.kind, len(places)
            if kind.changes == "tokens" and n >= kind.fewest:
                some = places[chosen(n, view.portion, draw)]
                kind.tokens(tokens, row, places, some, view.portion, draw)
        if tokens.kept is not None:
            batch[f"{COLUMN}_{_KEPT}"] = tokens.kept
        return batch

    def _words_of(self, batch: dict[str, Any]) -> Iterator[tuple[int, Tensor]]:
        """Yield the row of each sentence and its places there, without padding, prompt and special
        tokens.
        """
        ids, tokenizer = batch[f"{COLUMN}_input_ids"], self.model.tokenizer
        special = torch.tensor(sorted({*tokenizer.all_special_ids} - {tokenizer.unk_token_id}))
        prompt = batch.get(f"{COLUMN}_prompt_length") or 0
        if (starts := batch.get(f"{COLUMN}_{STARTS}")) is not None:
            rows = [
                (0, torch.arange(start, end))
                for start, end in zip(starts[:-1].tolist(), starts[1:].tolist())
            ]
        else:
            rows = [
                (row, mask.nonzero()[:, 0])
                for row, mask in enumerate(batch[f"{COLUMN}_attention_mask"])
            ]
        for row, places in rows:
            own = places[prompt:]
            yield row, own[~torch.isin(ids[row, own], special)]


def collator_of(
    stage: StageSpec,
    model: SentenceTransformer,
    given: Sequence[ViewSpec],
    arguments: Any,
    seed: int,
) -> ViewCollator | None:
    """Return what makes a stage's views; None where dropout alone does.

    Raises UserError for a view that the model or the loss does not go with.
    """
    views = list(given) if len(given) > 1 else [*given, *given]
    names: set[str] = {view.type for view in views}
    made = stage.declaration.views == "made"
    if names <= {"dropout"} and len(views) == 2 and made:
        return None
    for view in sorted(views, key=lambda view: view.type):
        _check_tokens(stage.name, model, view)
    if any(view.kind.hides for view in views):
        take_cut_off(model)
    if "template" in names and (names != {"template"} or not made):
        raise UserError(
            f"Stage {stage.name!r}: the view 'template' goes with its like alone, and with losses "
            "that encode both views in one, such as SimCSELoss; make all views templates, or none."
        )
    return ViewCollator(
        model.preprocess,
        prompts=arguments.prompts,
        router_mapping=arguments.router_mapping,
        model=model,
        views=views,
        seed=seed,
        in_one=made,
        templates=TemplateViews(model, views, COLUMN) if "template" in names else None,
    )


def _check_tokens(stage: str, model: SentenceTransformer, view: ViewSpec) -> None:
    if view.kind.changes == "tokens" and not isinstance(model[0], Transformer):
        raise UserError(
            f"Stage {stage!r}: the view '{view.type}' changes rows of tokens, which "
            f"{type(model[0]).__name__} does not read; choose one of words, such as 'crop'."
        )
    if view.kind.needs_mask and model.tokenizer.mask_token_id is None:
        raise UserError(
            f"Stage {stage!r}: the view '{view.type}' needs a mask token in the model's "
            "vocabulary, found none; choose another view."
        )


class TemplateViews:
    r"""Tokenises each view within its own template, and each again with the sentence hidden from
    attention.

    .. math:: e_k(x) = h_{[MASK]}(t_k(x)) - \hat h_{[MASK]}(t_k)

    The second term, the template's bias, is the state of the mask token at its place where nothing
    attends to the sentence; a loss subtracts it by :func:`~st_jtcse.losses.views.encode_views`.

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
                "The view 'template' needs a model that reads every text within one, found "
                "another; say model.template."
            )
        self._tokenizer, self._column = tokenizer, column
        own = tokenizer.backend_tokenizer.post_processor
        self._written = [
            own if view.text is None else written_around(tokenizer, view.text) for view in views
        ]

    def tokens(
        self, collate: Callable[[list[dict[str, Any]]], dict[str, Any]], texts: list[list[str]]
    ) -> Any:
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
                batch[key] = torch.cat(
                    [pad(row, (0, longest - row.shape[1]), value=filler) for row in rows]
                )
        return batch | {f"{self._column}_{BIASES}": True}


def take_cut_off(model: SentenceTransformer) -> None:
    r"""Let a model zero what ConSERT's cutoffs hide of its word embeddings: :math:`\tilde e_{td} =
    k_{td} e_{td}`.
    """
    kept: list[Tensor | None] = [None]

    def take(module: nn.Module, given: tuple[dict[str, Any], ...]) -> None:
        kept[0] = given[0].pop(_KEPT, None)

    def hide(module: nn.Module, given: Any, output: Tensor) -> Tensor:
        if kept[0] is None:
            return output
        return output * kept[0]

    model[0].register_forward_pre_hook(take)
    for table in _tables(model):
        table.register_forward_hook(hide)


def _tables(model: nn.Module) -> list[nn.Embedding]:
    """Return the tables of word embeddings of a model's encoders."""
    found: dict[Any, None] = {}
    for part in model.modules():
        with suppress(NotImplementedError):  # A twin has no table of its own.
            found |= (
                {part.get_input_embeddings(): None} if isinstance(part, PreTrainedModel) else {}
            )
    return list(found)
