"""Model cards: Sentence-Transformers' own, with what it cannot know: method, recipe, results,
limits.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from huggingface_hub import ModelCard
from jinja2 import Template
from sentence_transformers.base.model_card import generate_model_card
from yaml import YAMLError

from st_jtcse import bundled
from st_jtcse.atomic import write_atomically
from st_jtcse.errors import UserError
from st_jtcse.hub.card_results import CardResults, card_results
from st_jtcse.hub.model_form import model_form
from st_jtcse.reports.markdown import as_text, fence
from st_jtcse.reports.page import templates

CARD = "README.md"
# Sentence-Transformers' own stand-in for a name that the model has not got yet.
NO_ID = "sentence_transformers_model_id"
# Between these a card's results are replaced whenever they are told anew.
BEGIN, END = "<!-- results -->", "<!-- end of results -->"
# The template for losses that are not of this package.
OTHER = "other"


@dataclass(frozen=True)
class CardFacts:
    """What a card tells of a training, beside its record."""

    family: str  # a card template's name
    title: str  # the first heading
    recipe: str  # the resolved recipe, as YAML
    # Hub ids of the models that the training started from.
    base_models: Sequence[str] = ()
    license: str | None = (
        None  # the model's licence, as the Hub spells it; None if its makers have not said
    )
    languages: Sequence[str] = ()  # the text's languages, as two-letter codes
    notes: Sequence[str] = ()  # sentences about the training


def write_card(model: Any, folder: Path, facts: CardFacts, record: Mapping[str, Any]) -> None:
    """Write the card of a trained model into its folder, whose results it shows.

    `model` is the saved model, loaded, with the card data of its training; `record` has the
    training's results.
    """
    data, form = model.model_card_data, model_form(folder)
    # The folders' names are no Hub ids: nothing is to be looked up by them.
    data.local_files_only = True
    data.base_model = None
    data.register_model(model)
    for rows in data.train_datasets:
        if form.images:
            # They show files that no one else has.
            rows.update(examples=None, examples_table=None)
        elif rows.get("examples"):
            columns = rows["examples"].items()
            rows["examples"] = {key: list(map(_as_shown, cells)) for key, cells in columns}
    card = ModelCard(generate_model_card(model), ignore_metadata_errors=True)
    text = _template(facts.family).render(
        facts=facts,
        record=record,
        form=form,
        max_seq_length=model.max_seq_length,
        model_id=NO_ID,
        results=f"{BEGIN}\n{END}",
        theirs=_sections(card.text),
    )
    card.text = re.sub(r"\n{3,}", "\n\n", text)
    metadata: Any = card.data
    metadata.base_model = list(facts.base_models) or None
    metadata.license = facts.license
    metadata.language = list(facts.languages) or None
    metadata.pipeline_tag = "image-feature-extraction" if form.images else metadata.pipeline_tag
    metadata.tags = [*(metadata.tags or []), "st-jtcse"]
    if facts.family != OTHER:
        metadata.tags.append(facts.family)
    write_atomically(folder / CARD, _with_results(card, card_results(folder)))


def updated_card(folder: Path, model_id: str | None = None) -> str:
    """Return a folder's card with the results that it holds now, and in its code the model's name
    on the Hub.

    Raises UserError where there is no card, or it or the results cannot be read.
    """
    path = folder / CARD
    if not path.is_file():
        raise UserError(
            f"{folder} has no model card ({CARD}); save the model with Sentence-Transformers, "
            "which writes one."
        )
    try:
        card = ModelCard(path.read_text(encoding="utf-8"), ignore_metadata_errors=True)
    except (ValueError, YAMLError) as error:
        raise UserError(
            f"{path} cannot be read as a model card: {' '.join(str(error).split())}."
        ) from None
    found = card_results(folder)
    theirs: Any = card.data
    has_results = theirs.eval_results or "\n## Evaluation\n" in card.text
    if BEGIN not in card.text and not found.tables and has_results:
        text = card.content  # Another maker's card, with results of its own.
    else:
        if BEGIN not in card.text:
            card.text = f"{card.text.rstrip()}\n\n## Results\n\n{BEGIN}\n{END}\n"
        text = _with_results(card, found)
    if model_id is None:
        return text
    return text.replace(NO_ID, model_id)


def update_card(folder: Path) -> None:
    """Write a folder's card anew with the results that the folder holds now."""
    write_atomically(folder / CARD, updated_card(folder))


def _with_results(card: ModelCard, found: CardResults) -> str:
    """Return a card with these results and no others, in its text and in its metadata."""
    before, _, rest = card.text.partition(BEGIN)
    _, _, after = rest.partition(END)
    shown = _template("_results").render(found=found).strip()
    card.text = f"{before}{BEGIN}\n{shown}\n{END}{after}"
    metadata: Any = card.data
    metadata.eval_results = list(found.figures) or None
    metadata.model_name = found.name if found.figures else None
    metadata.metrics = sorted({figure.metric_type for figure in found.figures}) or None
    return card.content


def _as_shown(cell: Any) -> Any:
    if not isinstance(cell, str):
        return cell
    # Sentence-Transformers marks the bars of its tables itself.
    return as_text(cell).replace("\\|", "|")


def _sections(text: str) -> dict[str, str]:
    """Return the sections of a card by their headings, without the placeholders for
    people to fill.
    """
    filled = re.sub(r"<!--.*?-->\n*", "\n", text, flags=re.DOTALL)
    parts = re.split(r"^## (.+)\n", filled, flags=re.MULTILINE)
    return {heading: body.strip() for heading, body in zip(parts[1::2], parts[2::2])}


def _template(name: str) -> Template:
    # Markdown: what comes from outside goes through the filter `as_text` instead.
    made = templates(bundled.folder("model_cards"), autoescape=False)
    made.filters |= {"as_text": as_text, "fence": fence}
    return made.get_template(f"{name}.md")
