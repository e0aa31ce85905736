"""Judged pairs: some pairs of training sentences have similarities that a judge gave them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from pydantic import Field

from st_jtcse.papers.abilities.round_trips import views_beside
from st_jtcse.recipe.ability import Ability, Need
from st_jtcse.recipe.blocks import Source
from st_jtcse.recipe.yaml_source import Loc
from st_jtcse.wording import shown

if TYPE_CHECKING:
    from st_jtcse.recipe.consistency import PlacedStage
    from st_jtcse.recipe.schema import StageSpec
    from st_jtcse.training.job import Job
    from st_jtcse.training.stage_inputs import Inputs


class JudgedPairs(Ability):
    """`pair_scores`: a loss uses the similarity that a judge gave two sentences."""

    fields = {
        "pair_scores": (
            Source | None,
            Field(
                None,
                description="Pairs of training sentences with a similarity from 0 to 1, which "
                "LSRNSLoss uses instead of the teachers'.",
            ),
        )
    }
    after = ("HeldOut",)
    needing = (Need.TEXT, Need.ALL_ROWS)
    data_names = ("pair_scores",)

    def faults(self, placed: PlacedStage) -> Iterator[tuple[Loc, str]]:
        """Refuse another loss, and sentences that are no longer those of the pairs."""
        from st_jtcse.losses.catalogue import losses_that

        if not self.given(placed.spec):
            return
        yield from views_beside(self, placed)
        loc = placed.at(self.key)
        if placed.loss is not None and not placed.loss.judged_pairs:
            taking = " or ".join(losses_that("judged_pairs"))
            yield (
                loc,
                f"expected {taking} beside 'pair_scores', found {shown(placed.loss_name)}. Choose "
                "it, or remove 'pair_scores'.",
            )
        if placed.spec.args.get("prompts"):
            yield (
                loc,
                "expected sentences as 'pair_scores' names them, found 'prompts' in args before "
                "each. Remove one.",
            )
        if placed.has("augment"):
            yield (
                placed.at("augment"),
                "expected the sentences that 'pair_scores' names, found their round trips. Remove "
                "one.",
            )

    def read(self, stage: StageSpec, inputs: Inputs) -> None:
        """Read the pairs, whose sentences must be those of the text."""
        from st_jtcse import data
        from st_jtcse.recipe.sources import source_of

        if isinstance(inputs.sentences, data.Sentences):
            sentences = inputs.sentences.dataset["sentence"][:]
            judged = data.load_pair_scores(source_of(self.of(stage)), sentences)
            inputs.read[self.key] = judged.pairs
            inputs.hashes[self.key] = judged.sha256

    def wrap(self, job: Job) -> None:
        """Hand them to the loss."""
        if self.key in job.inputs.read:
            job.own_loss.use_pair_scores(job.inputs.read[self.key])
