"""Round trips: training sentences translated into other languages and back."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from st_jtcse.recipe.ability import Ability, Need
from st_jtcse.recipe.blocks import Block, Text
from st_jtcse.recipe.scale import Demand, Scale
from st_jtcse.recipe.yaml_source import Loc
from st_jtcse.wording import NAME_PATTERN

if TYPE_CHECKING:
    from st_jtcse.recipe.consistency import PlacedStage
    from st_jtcse.recipe.schema import StageSpec
    from st_jtcse.training.job import Job

_OPUS_MT = "Helsinki-NLP/opus-mt-{}-{}"
# This model knows several written forms of Chinese and is told which one.
_OPUS_MT_PREFIXES = {"zh": ">>cmn_Hans<< "}


class PivotSpec(Block):
    """A language to translate into and back; its code alone stands for the two OPUS-MT models."""

    name: str = Field(
        pattern=NAME_PATTERN, description="Name to report, e.g. the code of the language."
    )
    forward: Text = Field(
        description="Folder or Hub id of the model that translates from English into the language."
    )
    back: Text = Field(
        description="Folder or Hub id of the model that translates back into English."
    )
    forward_prefix: str = Field(
        "",
        description="Text that the first model needs before every sentence, e.g. a target language "
        "token.",
    )
    back_prefix: str = Field(
        "", description="Text that the second model needs before every sentence."
    )


def _opus_mt_shorthand(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    models = {"forward": _OPUS_MT.format("en", value), "back": _OPUS_MT.format(value, "en")}
    return {"name": value, **models, "forward_prefix": _OPUS_MT_PREFIXES.get(value, "")}


class AugmentSpec(Block):
    """Round-trip translation of the training sentences, computed once and cached."""

    pivots: list[Annotated[PivotSpec, BeforeValidator(_opus_mt_shorthand)]] = Field(
        min_length=1,
        description="Languages to go through; each adds its round trips of all sentences.",
    )
    mode: Literal["replace", "add", "pair"] = Field(
        "replace",
        description="replace: train on the round trips; add: on the sentences and then their "
        "round trips; pair: on columns sentence and round_trip, the two views.",
    )
    beam_size: int = Field(1, ge=1, description="Beams of the search; 1 is greedy.")
    max_length: int = Field(
        128, ge=8, description="Longest translation in tokens; longer ones are cut and counted."
    )
    batch_size: int = Field(64, ge=1, description="Sentences per forward pass.")
    bf16: bool = Field(False, description="Translate in bfloat16.")


def views_beside(ability: Ability, placed: PlacedStage) -> Iterator[tuple[Loc, str]]:
    """Refuse views beside an ability that needs the sentences of the file."""
    trains = placed.loss is not None and placed.spec.has_sentences
    if trains and placed.has("views") and ability.given(placed.spec):
        yield (
            placed.at(ability.key),
            f"expected the sentences themselves beside 'views', found '{ability.key}'. Remove one.",
        )


class RoundTrips(Ability):
    """`augment`: the stage trains on round trips, or on sentences and theirs as pairs."""

    fields = {
        "augment": (
            AugmentSpec | None,
            Field(None, description="Round-trip translation of the training sentences."),
        )
    }
    # Views are made of what the stage trains on.
    before = ("SentenceViews",)
    needing = (Need.LOSS, Need.SENTENCES, Need.TEXT, Need.ALL_ROWS)

    def faults(self, placed: PlacedStage) -> Iterator[tuple[Loc, str]]:
        """Refuse views beside it that it would take from the loss or that need the text's order,
        and pairs for a loss that makes both views itself.
        """
        views = getattr(placed.spec, "views", None) or ()
        if self.pairs_views(placed.spec) or "neighbour" in {view.type for view in views}:
            yield from views_beside(self, placed)
        loss = placed.loss
        if self.pairs_views(placed.spec) and loss is not None and loss.views == "made":
            yield (
                placed.at("augment", "mode"),
                f"expected 'replace' for {placed.loss_name}, which makes both views itself, found "
                "'pair'. Set it, or choose MultipleNegativesRankingLoss.",
            )

    def pairs_views(self, stage: StageSpec) -> bool:
        """Whether a stage trains on sentences and their round trips, its two views."""
        augment = self.of(stage)
        return augment is not None and augment.mode == "pair"

    def expected_rows(self, stage: StageSpec, rows: int) -> int:
        """Return the most there can be: a round trip may come back empty."""
        augment = self.of(stage)
        return rows * (len(augment.pivots) + (augment.mode == "add"))

    def demands(self, job: Job, scale: Scale, texts: int) -> Iterator[Demand]:
        """The translations, a share in each process."""
        trips = len(self.of(job.stage).pivots) * texts
        yield Demand("round trips", "translate", trips / scale.processes)

    def prepare(self, job: Job) -> None:
        """Translate what was not translated before, and tell how often that failed."""
        from st_jtcse import data
        from st_jtcse.papers.data.translation import Pivot, round_trip

        settings = dict(self.of(job.stage))
        pivots = [Pivot(**dict(pivot)) for pivot in settings.pop("pivots")]
        mode = settings.pop("mode")
        trip = round_trip(job.dataset, job.digest, pivots, mode, job.cache_dir, **settings)
        job.dataset, job.digest = trip.dataset, data.sentences_sha256(trip.dataset)
        job.record["round_trip"] = trip.counts

    def stand_in(self, job: Job) -> None:
        """Pair sentences with each other."""
        if self.pairs_views(job.stage):
            others = job.dataset["sentence"][::-1]
            job.dataset = job.dataset.add_column("round_trip", others)
