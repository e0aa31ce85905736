"""Maps for search: layers behind a model that the text's own passages make and choose."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from pydantic import Field

from st_jtcse.errors import UserError
from st_jtcse.recipe.ability import Ability, Need
from st_jtcse.recipe.blocks import Block
from st_jtcse.recipe.yaml_source import Loc

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

    from st_jtcse.data.known_items import KnownItems
    from st_jtcse.evaluation.search_maps import Entry
    from st_jtcse.evaluation.unique_texts import Vectors
    from st_jtcse.recipe.consistency import PlacedStage
    from st_jtcse.recipe.schema import StageSpec
    from st_jtcse.training.job import Job
    from st_jtcse.training.stage_inputs import Inputs

logger = logging.getLogger(__name__)

_BATCH = 64


class SearchMapsSpec(Block):
    """Layers fitted in closed form on the embeddings of passages and of queries made of them.

    They move the mean of the passages to zero, scale their axes a little, and map each query
    towards its passage. Held-out queries choose among candidates, the start among them
    (`st_jtcse.evaluation.search_maps`).
    """

    passages: int = Field(20_000, ge=100, description="Most passages that are looked at.")
    queries: int = Field(1000, ge=50, description="From how many passages queries are made.")


class SearchMaps(Ability):
    """`search_maps`: fitted and chosen on the stage's text, without training."""

    fields = {
        "search_maps": (
            SearchMapsSpec | None,
            Field(
                None,
                description="Append layers that make a search over the stage's text better; such a "
                "stage has no loss.",
            ),
        )
    }
    needing = (Need.EMBEDDINGS, Need.ROWS, Need.TEXT, Need.ALL_ROWS)
    after = ("HeldOut",)

    def faults(self, placed: PlacedStage) -> Iterator[tuple[Loc, str]]:
        """Refuse rows that are no text."""
        stage = placed.spec
        if not self.given(stage):
            return
        if stage.data is not None and stage.data.pairs is not None:
            text = "expected texts in data.train beside 'search_maps', found pairs. Give 'train'."
            yield placed.where("data", "pairs"), text

    def read(self, stage: StageSpec, inputs: Inputs) -> None:
        """Refuse a text of too few passages before anything is written."""
        from st_jtcse import data
        from st_jtcse.data.known_items import long_enough
        from st_jtcse.evaluation.search_maps import FEWEST

        if not isinstance(inputs.sentences, data.Sentences):
            return
        rows = inputs.sentences.dataset
        texts = (text for batch in rows.iter(10_000) for text in batch["sentence"])
        found = long_enough(texts, FEWEST)
        if found < FEWEST:
            raise UserError(
                f"Stage {stage.name!r}: expected {FEWEST} passages of a dozen words or more to "
                f"make queries of, found {found}. Add text, or choose 'purpose: topics'."
            )

    def finish(self, job: Job) -> None:
        """Append the layers; in a rehearsal ones of their shape. Raises UserError."""
        from st_jtcse.modules.closed_forms import append_maps

        if job.small or job.inputs.sentences is None:
            append_maps(job.model, [_identity(job.model)], normalize=True)
            return
        entries, best, told = self._contest(job)
        job.record["search_maps"] = told | {
            "chosen": best.name,
            "entries": [
                {
                    "name": entry.name,
                    "known_items": round(entry.known, 4),
                    "unseen": round(entry.unseen, 4),
                    "agreement": round(entry.agreement, 4),
                    "stays": round(entry.stays, 4),
                }
                for entry in entries
            ],
        }
        if best.maps:
            append_maps(job.model, best.maps, normalize=True)
        start = entries[0]
        logger.info(
            "%s: %s; what is cut out of passages finds them %.2f -> %.2f, agreement %.2f -> %.2f, "
            "%.0f %% of the nearest stay",
            job.stage.name,
            best.name if best.maps else "no candidate searches better, so the start stays",
            start.unseen,
            best.unseen,
            start.agreement,
            best.agreement,
            best.stays,
        )

    def _contest(self, job: Job) -> tuple[list[Entry], Entry, dict[str, Any]]:
        from st_jtcse.data.known_items import HEADING, known_items, passages_of
        from st_jtcse.evaluation.search_maps import chosen, compete
        from st_jtcse.evaluation.shared_encoding import found_together

        spec: SearchMapsSpec = self.of(job.stage)
        passages, headings = passages_of(job.sentences.rows, spec.passages)
        items = known_items(passages, job.seed, spec.queries, headings)
        logger.info(
            "%s: encoding %d passages and %d queries made of them",
            job.stage.name,
            len(passages),
            len(items.queries),
        )
        vectors = found_together(job.model, partial(_vectors, job.model, passages, items))
        entries = compete(*vectors, items, passages)
        told: dict[str, Any] = {"passages": len(passages), "queries": len(items.queries)}
        if headings:
            told["headings"] = items.kinds.count(HEADING)
        told["overlap"] = round(100 * items.overlap, 2)
        return entries, chosen(entries), told

    def card(self, record: Mapping[str, Any]) -> str:
        """Say what the layers are."""
        found = record.get("search_maps")
        if not found:
            return ""
        if found["chosen"] == found["entries"][0]["name"]:
            return "No candidate searched its text better, so it is the model that it began as."
        return (
            "Behind it stand linear layers for search, fitted on its text alone "
            f"({found['chosen']})."
        )


def _vectors(
    model: SentenceTransformer, passages: list[str], items: KnownItems
) -> tuple[Vectors, Vectors, Vectors]:
    """Return unit vectors of passages, queries, and of what the queries leave of theirs."""
    import numpy as np

    from st_jtcse.evaluation.shared_encoding import encode_shared
    from st_jtcse.modules.closed_forms import unit_rows

    how: dict[str, Any] = {"batch_size": _BATCH, "show_progress_bar": False}

    def unit(encode: Any, texts: list[str]) -> Vectors:
        found = encode_shared(model, partial(encode, **how), texts, _BATCH)
        return unit_rows(np.asarray(found, np.float32))

    vectors = unit(model.encode_document, passages)
    queries = unit(model.encode_query, items.queries)
    rests = np.zeros_like(queries)
    cut = [at for at, rest in enumerate(items.rests) if rest]
    rests[cut] = unit(model.encode_document, [items.rests[at] for at in cut])
    return vectors, queries, rests


def _identity(model: Any) -> Any:
    import numpy as np

    from st_jtcse.modules.closed_forms import AffineMap

    size = int(model.get_embedding_dimension() or 0)
    return AffineMap(np.eye(size), np.zeros(size))
