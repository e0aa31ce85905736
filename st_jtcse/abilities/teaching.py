"""Teachers: frozen models whose embeddings are the labels, kept on the disk or made anew."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import Field

from st_jtcse.errors import UserError
from st_jtcse.recipe.ability import Ability, Need
from st_jtcse.recipe.blocks import WeightedModelSpec
from st_jtcse.recipe.scale import Demand, Scale
from st_jtcse.recipe.yaml_source import Loc

if TYPE_CHECKING:
    from datasets import Dataset

    from st_jtcse.data.teachers import Form
    from st_jtcse.recipe.consistency import PlacedStage
    from st_jtcse.recipe.schema import StageSpec
    from st_jtcse.training.job import Job


class TeacherSpec(WeightedModelSpec):
    """A teacher."""

    normalize: bool = Field(
        False, description="Scale its embeddings to unit length before they are summed."
    )
    cache: bool = Field(
        True,
        description="Keep its embeddings on the disk; false, of all or none: embed batches anew.",
    )


class Teaching(Ability):
    """`teachers`: the sum of their embeddings, or their concatenation, is the label column."""

    fields = {
        "teachers": (
            list[TeacherSpec],
            Field(
                default_factory=list,
                description="Teachers whose summed embeddings become the label column.",
            ),
        )
    }
    after = ("RoundTrips", "SentenceViews")

    def needs(self, stage: StageSpec) -> Mapping[Need, str]:
        """All sentences, unless the teachers embed batches anew."""
        found = dict.fromkeys((Need.LOSS, Need.SENTENCES), self.key)
        if any(teacher.cache for teacher in self.of(stage)):
            found[Need.ALL_ROWS] = "teachers without 'cache: false'"
        return found

    def models(self, stage: StageSpec) -> Mapping[Loc, WeightedModelSpec]:
        """The teachers."""
        return {("teachers", at): teacher for at, teacher in enumerate(self.of(stage))}

    def faults(self, placed: PlacedStage) -> Iterator[tuple[Loc, str]]:
        """Refuse teachers that a loss does not learn from, and their lack where it does."""
        yield from _loss_faults(placed)
        cached = {teacher.cache for teacher in self.of(placed.spec)}
        if len(cached) > 1:
            yield (
                placed.at("teachers"),
                "expected one 'cache' for all teachers, found true and false. Give each the same.",
            )
        elif are_live(placed.spec):
            yield from _live_faults(placed)

    def demands(self, job: Job, scale: Scale, texts: int) -> Iterator[Demand]:
        """Their vectors, or those of each batch anew."""
        if are_live(job.stage):
            yield _anew(job, scale, texts)
        else:
            yield taught_by(job).demand("teachers' vectors", job, scale, texts)

    def ahead(self, job: Job) -> Iterator[Callable[[], Any]]:
        """Their vectors, unless they embed batches anew."""
        if not are_live(job.stage):
            yield lambda: taught_by(job).labelled(job.dataset, job.digest, job.cache_dir)

    def prepare(self, job: Job) -> None:
        """Add the label column; teachers that embed batches anew join the collator instead."""
        if are_live(job.stage):
            job.collators.append(lambda collate: LiveTeachers(taught_by(job), collate))
            return
        job.dataset = taught_by(job).labelled(job.dataset, job.digest, job.cache_dir)

    def stand_in(self, job: Job) -> None:
        """Make vectors up, of the teachers' size."""
        import numpy as np
        import pyarrow as pa
        from datasets import Dataset, concatenate_datasets

        size = taught_by(job).size
        vectors = np.random.default_rng(0).normal(size=(len(job.dataset), size)) / size**0.5
        halves = pa.array(vectors.astype(np.float16).ravel())
        labels = Dataset(pa.table({"label": pa.FixedSizeListArray.from_arrays(halves, size)}))
        job.dataset = concatenate_datasets([job.dataset, labels], axis=1)

    def wrap(self, job: Job) -> None:
        """Let a loss of the libraries read embeddings alone; this package's see to it."""
        from st_jtcse.losses.views import in_length_chunks
        from st_jtcse.modules.first_row import first_row_alone

        if _form_of(job.stage) == "sum":
            job.during.append(lambda: first_row_alone(job.model))
            if not type(job.own_loss).__module__.startswith("st_jtcse."):
                job.during.append(lambda: in_length_chunks(job.model))


@dataclass(frozen=True)
class Taught:
    """The teachers of a stage, loaded."""

    models: list[Any]
    weights: list[float]
    form: Form

    @property
    def size(self) -> int:
        """The length of the label vectors."""
        from st_jtcse.data.teachers import label_size

        return label_size(self.models, self.form)

    def measured(self, job: Job) -> float | None:
        """Return how many of a stage's texts are embedded a second."""
        from st_jtcse.data.teachers import encoder_of
        from st_jtcse.training.rates import texts_a_second

        return texts_a_second(job, encoder_of(self.models, self.weights, self.form))

    def demand(self, what: str, job: Job, scale: Scale, texts: int, component: int = 2) -> Demand:
        """Return what the vectors of so many texts take, by the bytes of a component: each process
        computes a share, and while the shards are joined they are there twice.
        """
        size = float(component * self.size * texts)
        own, wire = texts / scale.processes, scale.on_wires(size)
        return Demand(
            what, "encode", own, lambda: self.measured(job), disk=size, beside=size, wire=wire
        )

    def labelled(self, sentences: Dataset, digest: str, cache_dir: Path) -> Dataset:
        """Return sentences, of this hash, with the column ``label``."""
        from st_jtcse.data.teachers import with_teacher_labels

        return with_teacher_labels(
            sentences, digest, self.models, self.weights, cache_dir, form=self.form
        )


class LiveTeachers:
    """A collator that gives another one each sentence's label, the teachers' vector, which is kept
    nowhere.
    """

    def __init__(self, taught: Taught, collate: Any) -> None:
        from st_jtcse.data.teachers import encoder_of

        self._encode = encoder_of(taught.models, taught.weights, taught.form)
        self._collate = collate
        self.valid_label_columns = collate.valid_label_columns

    def __call__(self, rows: list[dict[str, Any]]) -> dict[str, Any]:
        """Return a batch as if its rows had come with their labels."""
        labels = self._encode([row["sentence"] for row in rows]).to_pylist()
        batch: dict[str, Any] = self._collate([row | label for row, label in zip(rows, labels)])
        return batch


def _anew(job: Job, scale: Scale, texts: int) -> Demand:
    from st_jtcse.training.forecast import steps_of

    steps = steps_of(job.stage, texts, scale.processes) or 0
    parts = int(job.stage.args.get("gradient_accumulation_steps", 1))
    rows = steps * job.stage.batch_size * parts
    return Demand("teachers, each batch anew", "encode", rows, lambda: taught_by(job).measured(job))


def are_live(stage: StageSpec) -> bool:
    """Whether a stage has teachers that embed each batch anew."""
    teachers = Teaching().of(stage)
    return bool(teachers) and not any(teacher.cache for teacher in teachers)


def taught_by(job: Job) -> Taught:
    """Return the teachers of a stage, loaded once for all that prepares it.

    Raises UserError where they do not load, or the student's embeddings cannot be compared with
    theirs, before any is computed.
    """
    if Taught not in job.shared:
        taught = load_teachers(job)
        # Ahead of a run there is no loss, and the rehearsal has compared the sizes.
        if taught.form == "sum" and job.loss is not None:
            _check_size(job, taught.size)
        job.shared[Taught] = taught
    return job.shared[Taught]


def load_teachers(job: Job) -> Taught:
    """Load the teachers of a stage."""
    return Taught(*loaded(job, Teaching().of(job.stage)), _form_of(job.stage))


def loaded(job: Job, specs: Iterable[TeacherSpec]) -> tuple[list[Any], list[float]]:
    """Load models that are not trained; return them and their weights."""
    from sentence_transformers.sentence_transformer.modules import Normalize

    models, weights = [], []
    for spec in specs:
        teacher = job.load(spec)
        if spec.normalize:
            teacher.append(Normalize())
        models.append(teacher)
        weights.append(spec.weight)
    return models, weights


def _form_of(stage: StageSpec) -> Form:
    # The recipe's checks let teachers stand only beside a loss that declares their form.
    return stage.declaration.teachers or "sum"


def _check_size(job: Job, size: int) -> None:
    projection = getattr(job.loss, "projection", None)
    if projection is not None:
        own = projection.out_features
        told = f"loss.projection_dim is {own}; set it to {size}."
    else:
        own = job.loss.model.get_embedding_dimension()
        told = f"the student's {own}; use EmbedDistillLoss with projection_dim: {size}."
    if own != size:
        raise UserError(
            f"Stage {job.stage.name!r}: the teachers' embeddings have {size} components, {told}"
        )


def _loss_faults(placed: PlacedStage) -> Iterator[tuple[Loc, str]]:
    from st_jtcse.losses.catalogue import losses_that

    loss, spec = placed.loss, placed.spec.loss
    if loss is None or spec is None or not placed.spec.has_sentences:
        return
    name = placed.loss_name
    if not Teaching().given(placed.spec):
        if loss.needs_teachers(spec.arguments):
            yield (
                placed.at("teachers"),
                f"expected the models that {name} learns from, found none. Add 'teachers: "
                "[{model: NAME}]'.",
            )
    elif loss.teachers is None:
        way = ""
        if not placed.spec.model.scores_pairs:
            way = f", or choose one of: {', '.join(losses_that('teachers'))}"
        yield (
            placed.at("teachers"),
            f"expected no teachers beside {name}, which learns from none, found some. Remove "
            f"them{way}.",
        )


def _live_faults(placed: PlacedStage) -> Iterator[tuple[Loc, str]]:
    found = [needs[Need.ALL_VECTORS] for needs in placed.needs if Need.ALL_VECTORS in needs]
    if placed.spec.args.get("dataloader_num_workers"):
        found.append("dataloader_num_workers")
    for key in found:
        yield (
            placed.at("teachers", 0, "cache"),
            f"expected true beside '{key}', which needs the embeddings beforehand, found false. "
            "Remove one.",
        )
