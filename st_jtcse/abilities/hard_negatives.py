"""Hard negatives: each pair gets texts of other pairs that the start takes for nearly right."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import redirect_stderr
from io import StringIO
from typing import TYPE_CHECKING, Any

from pydantic import Field

from st_jtcse.errors import UserError
from st_jtcse.recipe.ability import Ability, Need
from st_jtcse.recipe.blocks import Block
from st_jtcse.recipe.scale import Demand, Scale
from st_jtcse.recipe.yaml_source import Loc

if TYPE_CHECKING:
    from st_jtcse.recipe.consistency import PlacedStage
    from st_jtcse.recipe.schema import StageSpec
    from st_jtcse.training.job import Job
    from st_jtcse.training.stage_inputs import Inputs


class HardNegativesSpec(Block):
    """Which texts of other pairs are taken for wrong answers, as Sentence-Transformers mines
    them.
    """

    count: int = Field(
        1, ge=1, description="How many for each pair; each makes a row of its own with the pair."
    )
    margin: float = Field(
        0.05,
        ge=0,
        lt=1,
        description="How much less similar than the right text a wrong one is, as a share of that "
        "similarity: nearer ones may be right too.",
    )
    skip: int = Field(0, ge=0, description="How many of the most similar texts to leave out.")


class HardNegatives(Ability):
    """`hard_negatives`: a loss that ranks the texts of a batch sees the hardest wrong ones too."""

    fields = {
        "hard_negatives": (
            HardNegativesSpec | None,
            Field(None, description="Wrong texts for each pair, found by the model as it starts."),
        )
    }
    needing = (Need.LOSS, Need.TEXT, Need.ALL_ROWS)

    def faults(self, placed: PlacedStage) -> Iterator[tuple[Loc, str]]:
        """Refuse rows that are not pairs, and losses that take no third text."""
        data, loss = placed.spec.data, placed.loss
        if not self.given(placed.spec) or data is None or loss is None:
            return
        if data.pairs is None or data.labels != "none":
            text = "expected pairs without labels (data.pairs, 'labels: none') beside it, found "
            yield placed.at(self.key), f"{text}others. Remove 'hard_negatives'."
        elif loss.texts is None or loss.texts[1] is not None:
            yield (
                placed.at(self.key),
                "expected a loss that takes a third text, such as MultipleNegativesRankingLoss, "
                f"found {placed.loss_name}. Change it, or remove 'hard_negatives'.",
            )

    def read(self, stage: StageSpec, inputs: Inputs) -> None:
        """Refuse rows that have a third text."""
        count = len(inputs.sentences.dataset.column_names) if inputs.sentences else 2
        if count != 2:
            raise UserError(
                f"Stage {stage.name!r}: 'hard_negatives' completes pairs of two texts, found "
                f"{count}; name two of them by 'columns', or remove 'hard_negatives'."
            )

    def demands(self, job: Job, scale: Scale, texts: int) -> Iterator[Demand]:
        """Both texts of each pair, and a search of each one among all, in every process."""
        from functools import partial

        from st_jtcse.abilities.neighbourhoods import searched_a_second
        from st_jtcse.data.nearest import EXACT
        from st_jtcse.training.rates import texts_a_second

        encode = partial(job.model.encode, show_progress_bar=False)
        size = int(job.model.get_embedding_dimension() or 0)
        yield Demand("pairs' vectors", "encode", 2 * texts, lambda: texts_a_second(job, encode))
        yield Demand(
            "hard negatives",
            "compare",
            float(texts) ** 2,
            lambda: searched_a_second(size, min(texts, EXACT)),
            peak=2.0 * 4 * size * texts,
        )

    def expected_rows(self, stage: StageSpec, rows: int) -> int:
        """Return the most there can be: some pairs may have no text that is wrong enough."""
        return rows * int(self.of(stage).count)

    def ahead(self, job: Job) -> tuple[()]:
        """Nothing is kept, and nobody else's rows are made of pairs."""
        return ()

    def prepare(self, job: Job) -> None:
        """Mine them, and tell how many pairs are left."""
        from sentence_transformers.util import mine_hard_negatives

        from st_jtcse.data.rows import rows_sha256

        own: HardNegativesSpec = self.of(job.stage)
        # Its bars, which it cannot be asked to leave out.
        with redirect_stderr(StringIO()):
            job.dataset = mine_hard_negatives(
                job.dataset,
                job.model,
                range_min=own.skip,
                relative_margin=own.margin,
                num_negatives=own.count,
                batch_size=job.stage.batch_size,
                verbose=False,
            )
        job.digest = rows_sha256(zip(*job.dataset[:].values()))
        job.record["hard_negatives"] = len(job.dataset)

    def stand_in(self, job: Job) -> None:
        """Take the other rows' right texts for wrong ones."""
        others = job.dataset["sentence2"][::-1]
        job.dataset = job.dataset.add_column("negative", others)

    def card(self, record: Mapping[str, Any]) -> str:
        """Return how many there were."""
        return f"{record['hard_negatives']} rows hold a hard negative, mined by the start."
