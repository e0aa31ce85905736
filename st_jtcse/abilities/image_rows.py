"""Images in the place of sentences: what is made of words is refused beside them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from st_jtcse.errors import UserError
from st_jtcse.recipe.ability import Ability, Need, given

if TYPE_CHECKING:
    from st_jtcse.recipe.schema import StageSpec
    from st_jtcse.training.job import Job
    from st_jtcse.training.stage_inputs import Inputs

# Keys of a model that say how it reads words.
_OF_WORDS = ("template", "max_seq_length")


class ImageRows(Ability):
    """`data.train` names images; the data themselves say so, no key does."""

    def used(self, stage: StageSpec) -> bool:
        """Wherever there is training data, which may be images."""
        return stage.training_data is not None

    def read(self, stage: StageSpec, inputs: Inputs) -> None:
        """Refuse what is made of words, where a stage trains on images."""
        if inputs.sentences is None or inputs.sentences.modality == "text":
            return
        found = [need for own in given(stage) if (need := own.needs(stage).get(Need.TEXT))]
        found += [f"model.{key}" for key in _OF_WORDS if getattr(stage.model, key) is not None]
        for name, own in inputs.sets.items():
            if isinstance(own.columns[0][0], str):
                found.append(f"the set {name}")
        if found:
            raise UserError(
                f"Stage {stage.name!r}: {found[0]!r} is for text, and it trains on images; remove "
                "it."
            )

    def stand_in(self, job: Job) -> None:
        """Take noise in place of words that the model does not read."""
        import numpy as np
        from datasets import Dataset, Features, Image

        if job.made_up and not job.model.supports("text"):
            shape = (len(job.dataset), 32, 32, 3)
            noise = np.random.default_rng(0).integers(0, 256, shape, np.uint8)
            job.dataset = Dataset.from_dict({"sentence": [*noise]}, Features({"sentence": Image()}))
