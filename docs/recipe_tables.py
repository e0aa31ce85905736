"""Makes the tables of keys in recipes.md from the schema: python docs/recipe_tables.py."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

from pydantic import BaseModel

from st_jtcse.recipe.blocks import SourceSpec
from st_jtcse.recipe.schema import Recipe, StageSpec

PAGE = Path(__file__).with_name("recipes.md")
# Where a page says more than the key's description.
MORE = {
    "augment": "[round trips](#round-trip-translation)",
    "card": "[the Hub](hub.md)",
    "data.pairs": "[ranking](ranking.md)",
    "data.streaming": "[corpora larger than memory](scale.md#corpora-larger-than-memory)",
    "data.train": "[images](#images)",
    "evaluate.test": "[evaluation sets](#evaluation-sets-and-the-verdict)",
    "extends": "[extending](#extending-a-recipe)",
    "loss": "[losses and their data](#losses-and-their-data)",
    "loss.matryoshka_dims": "[Matryoshka embeddings](#matryoshka-embeddings)",
    "model.base": "[as shipped](#as-shipped)",
    "model.lora": "[LoRA](#lora)",
    "model.template": "[templates](views.md#templates)",
    "neighbours": "[adapting](adapt.md)",
    "pair_scores": "[LS-RNS](lsrns.md#judged-pairs)",
    "push": "[the Hub](hub.md)",
    "seeds": "[seeds and sweeps](#seeds-and-sweeps)",
    "sweep": "[seeds and sweeps](#seeds-and-sweeps)",
    "teachers": "[teacher vectors](#teacher-vectors)",
    "views": "[views](views.md)",
    "whitening": "[whitening](views.md#whitening)",
}
TABLES: dict[str, type[BaseModel]] = {"recipe": Recipe, "stage": StageSpec, "source": SourceSpec}


def rows(block: type[BaseModel], above: str = "") -> Iterator[str]:
    """Yield a line of the table for each key of a block, and for those of the blocks in a stage."""
    for name, field in block.model_fields.items():
        key = f"{above}{name}"
        meaning = (field.description or "").rstrip(".").replace("|", "\\|")
        told = f"{meaning}: {MORE[key]}" if key in MORE else meaning
        yield f"| `{key}` | {told} |"
        inner = block_in(field.annotation)
        if block is StageSpec and inner not in (None, SourceSpec):
            yield from rows(inner, f"{key}.")


def block_in(annotation: Any) -> type[BaseModel] | None:
    """Return the block that an annotation holds, alone, in a list or beside null."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    for part in get_args(annotation):
        if (found := block_in(part)) is not None:
            return found
    return None


def made(text: str) -> str:
    """Return the page with its tables as the schema has them."""
    for name, block in TABLES.items():
        table = "\n".join(["| key | meaning |", "|---|---|", *rows(block)])
        begin, end = f"<!-- made by recipe_tables.py: {name} -->\n", "\n<!-- end -->"
        before, rest = text.split(begin)
        text = f"{before}{begin}{table}{end}{rest.split(end, 1)[1]}"
    return text


if __name__ == "__main__":
    PAGE.write_text(made(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
