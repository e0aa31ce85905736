"""Views: how the two views of a sentence are made, and the soft negative that is a third."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from pydantic import Field

from st_jtcse.abilities.sentence_views.view_blocks import Views
from st_jtcse.abilities.sentence_views.view_kinds import kinds
from st_jtcse.errors import UserError
from st_jtcse.recipe.ability import Ability, Need, given
from st_jtcse.recipe.scale import Demand, Scale
from st_jtcse.recipe.yaml_source import Loc

if TYPE_CHECKING:
    from st_jtcse.losses.declaration import LossDeclaration
    from st_jtcse.recipe.consistency import PlacedStage
    from st_jtcse.recipe.schema import StageSpec
    from st_jtcse.training.job import Job
    from st_jtcse.training.stage_inputs import Inputs

logger = logging.getLogger(__name__)


class SentenceViews(Ability):
    """`views`: a collator makes those of every sentence; without the key, dropout does."""

    fields = {
        "views": (
            Views | None,
            Field(
                None,
                description="How the two views of a sentence are made: one name for both, or two: "
                f"{', '.join(kinds())}; dropout is the default. A third is for losses that compare "
                "them with one, such as SNCSELoss.",
            ),
        )
    }
    after = ("Dropout", "HeldOut")
    alters_loss = True

    def used(self, stage: StageSpec) -> bool:
        """Wherever the loss compares two views: they must not be equal."""
        return self.given(stage) or stage.declaration.views == "made"

    def needs(self, stage: StageSpec) -> Mapping[Need, str]:
        """Sentences; the next one of a sentence is known where all are."""
        found = dict.fromkeys((Need.LOSS, Need.SENTENCES, Need.TEXT), self.key)
        if "neighbour" in names_of(stage):
            found[Need.ALL_ROWS] = "views: neighbour"
        return found

    def faults(self, placed: PlacedStage) -> Iterator[tuple[Loc, str]]:
        """Refuse views that the loss does not take, and their lack where it needs them."""
        loss, spec = placed.loss, placed.spec.loss
        if loss is None or spec is None or not placed.spec.has_sentences:
            return
        yield from self._loss_faults(placed, loss)
        yield from self._third_view_faults(placed, loss, spec.arguments)

    def _loss_faults(self, placed: PlacedStage, loss: LossDeclaration) -> Iterator[tuple[Loc, str]]:
        named = self.given(placed.spec)
        paired = any(own.pairs_views(placed.spec) for own in given(placed.spec))
        if loss.views == "given" and not named and not paired:
            yield (
                placed.at("loss", "type"),
                f"expected a loss that makes both views itself, found {placed.loss_name}. Choose "
                "SimCSELoss, or add 'views', or 'augment' with 'mode: pair'.",
            )
        if named and loss.views != "given" and not loss.any_views:
            yield (
                placed.at("views"),
                f"expected a loss that compares two views of a sentence, found {placed.loss_name}. "
                "Remove 'views'.",
            )

    def _third_view_faults(
        self, placed: PlacedStage, loss: LossDeclaration, arguments: Mapping[str, Any]
    ) -> Iterator[tuple[Loc, str]]:
        from st_jtcse.losses.catalogue import losses_that

        count = len(self.of(placed.spec) or ())
        needed = loss.needs_third_view(arguments)
        if needed and count < 3:
            yield (
                placed.at("views"),
                f"expected three views for {placed.loss_name}, found {count}. Add one, such as "
                "'views: [dropout, dropout, negate]'.",
            )
        elif count == 3 and not needed:
            yield (
                placed.at("views"),
                f"expected one view or two for {placed.loss_name}, found 3. Remove one, or choose "
                f"one of: {', '.join(losses_that('third_view'))}.",
            )

    def read(self, stage: StageSpec, inputs: Inputs) -> None:
        """Refuse the next sentences of a text whose documents nothing parts."""
        from st_jtcse import data

        rows = inputs.sentences
        if "neighbour" in names_of(stage) and isinstance(rows, data.Sentences):
            if not rows.skipped_blank:
                raise UserError(
                    f"Stage {stage.name!r}: the view 'neighbour' needs blank lines between "
                    "documents, found none in the training text; add them, or choose another view."
                )

    def demands(self, job: Job, scale: Scale, texts: int) -> Iterator[Demand]:
        """The rows of the next sentences; other views are made in the steps."""
        from st_jtcse.abilities.sentence_views.next_sentences import NEXT_PEAK, NEXT_ROW

        if "neighbour" in names_of(job.stage):
            peak = (NEXT_PEAK - NEXT_ROW) * texts
            yield Demand("next sentences", held=NEXT_ROW * texts, peak=peak)

    def prepare(self, job: Job) -> None:
        """Add the next sentences as a column, and tell what no view of words changes."""
        from st_jtcse.abilities.sentence_views.next_sentences import kept_whole, with_next

        names = names_of(job.stage)
        keeps_words = any(
            kinds()[name].changes == "words" and kinds()[name].fewest > 1 for name in names
        )
        if keeps_words and job.sentences.count is not None:
            self._tell_kept_whole(job, kept_whole(job.dataset))
        if "neighbour" in names:
            job.columns_of = with_next
            job.dataset = with_next(job.sentences)

    def _tell_kept_whole(self, job: Job, count: int) -> None:
        if count:
            job.record["kept_whole"] = count
            told = "%s: %d sentences of one word are kept whole in both views"
            logger.info(told, job.stage.name, count)

    def stand_in(self, job: Job) -> None:
        """Take other sentences for the next ones."""
        if "neighbour" in names_of(job.stage):
            others = job.dataset["sentence"][::-1]
            job.dataset = job.dataset.add_column("neighbour", others)

    def wrap(self, job: Job) -> None:
        """Set the collator that makes the views; refuse views that are equal."""
        from st_jtcse.abilities.sentence_views.equal_views import refuse_equal_views
        from st_jtcse.abilities.sentence_views.view_collator import collator_of

        made = None
        if self.given(job.stage):
            made = collator_of(job.stage, job.model, self.of(job.stage), job.arguments, job.seed)
        refuse_equal_views(job.stage, job.model, job.dataset, made)
        if made is not None:
            job.collator = made
            job.callbacks.append(made)


def names_of(stage: StageSpec) -> set[str]:
    """Return the kinds of a stage's views."""
    return {view.type for view in SentenceViews().of(stage) or ()}
