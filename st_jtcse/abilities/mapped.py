"""Maps: layers behind the model that are fitted in closed form on the stage's sentences."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import BeforeValidator, Field, model_validator

from st_jtcse.abilities.contest import SAMPLE, Entry, agreement, told, winner
from st_jtcse.abilities.teaching import Taught, TeacherSpec, loaded
from st_jtcse.errors import UserError
from st_jtcse.recipe.ability import Ability, Need
from st_jtcse.recipe.blocks import DEV, Block, Sources, WeightedModelSpec
from st_jtcse.recipe.scale import Demand, Scale
from st_jtcse.recipe.yaml_source import Loc

if TYPE_CHECKING:
    from st_jtcse import data
    from st_jtcse.data.encoded import Encoded
    from st_jtcse.data.fitted_maps import Step
    from st_jtcse.evaluation.measured_sets import OwnSet
    from st_jtcse.evaluation.unique_texts import Vectors
    from st_jtcse.modules.closed_forms import AffineMap
    from st_jtcse.recipe.consistency import PlacedStage
    from st_jtcse.recipe.data_blocks import EvaluateSpec
    from st_jtcse.recipe.schema import StageSpec
    from st_jtcse.training.job import Job
    from st_jtcse.training.limits import Limits
    from st_jtcse.training.stage_inputs import Inputs

    Maps = list[AffineMap]

logger = logging.getLogger(__name__)

_ANCHORS = "anchors"
# Shares of a map that are tried, the rest being the identity's.
SHARES = (1.0, 0.8, 0.6, 0.4, 0.2)


class DrawnSpec(Block):
    """A regression of the text's vectors on themselves, drawn towards their neighbours' mean."""

    count: int = Field(20, ge=1, description="How many of the nearest sentences to use.")
    weight: Annotated[float, Field(ge=0, le=1)] | None = Field(
        None,
        description="How far to move each target towards its neighbours' mean, from 0 to 1. null: "
        "set by the text, at most 0.5; the more the text has topics, the higher.",
    )
    ridge: float = Field(
        1.0,
        ge=0,
        allow_inf_nan=False,
        description="How strongly the map shrinks towards the identity, in rows of the text.",
    )


class TowardsSpec(Block):
    """A regression of the text's vectors on those of other models."""

    teachers: list[TeacherSpec] = Field(
        min_length=1, description="Models whose summed embeddings are the targets, of any size."
    )
    ridge: float = Field(
        1.0,
        ge=0,
        allow_inf_nan=False,
        description="How strongly the map shrinks, in rows of the text.",
    )
    towards_identity: bool = Field(
        False,
        description="Shrink towards the identity, for targets in the coordinates of the stage's "
        "own vectors, as those of the same model after training; else towards nothing.",
    )


class MapSpec(Block):
    """One map, by exactly one of its keys; 'centred' is short for 'centred: true', 'drawn' for
    'drawn: {}'.
    """

    centred: Literal[True] | None = Field(None, description="Subtract the text's mean.")
    mean_direction: Literal[True] | None = Field(
        None, description="Subtract each vector's projection on the text's mean."
    )
    top_axes: int | None = Field(
        None,
        ge=1,
        description="Subtract the mean, and this many principal axes of the largest variance.",
    )
    axes: float | None = Field(
        None,
        ge=-0.5,
        le=0.5,
        description="Subtract the mean, and scale each principal axis by its variance to this "
        "power: -0.5 whitens, less in part, above 0 the opposite.",
    )
    drawn: DrawnSpec | None = Field(
        None, description="Draw vectors towards what the text's neighbours have in common."
    )
    towards: TowardsSpec | None = Field(None, description="Map vectors to other models'.")

    @model_validator(mode="after")
    def _one(self) -> MapSpec:
        given = [key for key in type(self).model_fields if getattr(self, key) is not None]
        if len(given) != 1:
            keys = ", ".join(map(repr, type(self).model_fields))
            found = " and ".join(map(repr, given)) or "none of them"
            raise ValueError(f"expected exactly one of {keys}, found {found}. Give one.")
        return self

    @property
    def told(self) -> str:
        """The map in a word or two, for records and logs."""
        ((key, value),) = self.model_dump(mode="json", exclude_none=True).items()
        if self.drawn is not None:
            return f"drawn {self.drawn.count}"
        if value is True or self.towards is not None:
            return key
        return f"{key} {value:g}"


def _map_shorthand(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    return {value: {} if value == "drawn" else True}


class MapsSpec(Block):
    """Linear layers behind the model, each followed by a normalisation, that the text's embeddings
    determine without training.

    The model is saved with Sentence-Transformers' own Dense and Normalize modules. Each component
    of an embedding then depends on all of the model's before; the maps but `towards` keep each one
    near its own place, so that truncated embeddings (Matryoshka) stay of use, but not exactly what
    they were.
    """

    ways: list[
        Annotated[list[Annotated[MapSpec, BeforeValidator(_map_shorthand)]], Field(min_length=1)]
    ] = Field(
        min_length=1,
        description="Lists of maps, each fitted on what those before it made of the text. Of "
        "several ways, and the model without any, `evaluate.dev` chooses; without `dev` there is "
        "one way, and it is taken.",
    )
    anchors: Sources | None = Field(
        None,
        description="General sentences that are to keep their vectors. Each way then becomes one "
        "linear layer, by a regression of the text on what the way makes of it, and of the anchors "
        "on themselves.",
    )
    anchor_share: float = Field(
        1 / 3,
        gt=0,
        lt=1,
        description="Weight of the anchors among all rows of that regression.",
    )
    normalize: bool = Field(
        False,
        description="Let a model whose embeddings are not of length 1 end with such; its dot "
        "products and distances change, its cosines do not.",
    )

    @property
    def names(self) -> list[str]:
        """The ways in a few words each."""
        return [", ".join(step.told for step in way) for way in self.ways]

    @property
    def steps(self) -> list[tuple[int, int, MapSpec]]:
        """All maps, with the positions of their ways and in these."""
        return [
            (way, at, step) for way, steps in enumerate(self.ways) for at, step in enumerate(steps)
        ]


class Mapped(Ability):
    """`maps`: fitted on the stage's sentences, without training, and chosen without labels."""

    fields = {
        "maps": (
            MapsSpec | None,
            Field(
                None,
                description="Fit linear layers behind the model on the stage's sentences; such a "
                "stage has no loss.",
            ),
        )
    }
    after = ("HeldOut",)
    needing = (Need.EMBEDDINGS, Need.ROWS, Need.TEXT, Need.ALL_ROWS)
    data_names = (_ANCHORS,)

    def models(self, stage: StageSpec) -> Mapping[Loc, WeightedModelSpec]:
        """The teachers that maps lead to."""
        own: MapsSpec = self.of(stage)
        return {
            ("maps", "ways", way, at, "towards", "teachers", number): teacher
            for way, at, step in own.steps
            for number, teacher in enumerate(step.towards.teachers if step.towards else ())
        }

    def faults(self, placed: PlacedStage) -> Iterator[tuple[Loc, str]]:
        """Refuse rows that are no sentences, and a choice without what chooses."""
        own, stage = self.of(placed.spec), placed.spec
        if own is None:
            return
        if stage.data is not None and stage.data.pairs is not None:
            text = "expected sentences in data.train beside 'maps', found pairs. Give 'train' "
            yield placed.where("data", "pairs"), f"{text}instead."
        if len(own.ways) > 1 and (stage.evaluate is None or stage.evaluate.dev is None):
            text = (
                f"expected one way, or 'evaluate.dev' to choose by, found {len(own.ways)} ways. "
                "Add 'evaluate: {dev: unlabelled}', or keep one."
            )
            yield placed.at("maps", "ways"), text
        foreign = any(
            step.towards is not None and not step.towards.towards_identity
            for _, _, step in own.steps
        )
        if own.anchors is not None and foreign:
            text = (
                "expected maps in the model's own coordinates beside 'anchors', found 'towards' "
                "others. Set 'towards_identity', or remove the anchors."
            )
            yield placed.at("maps", "anchors"), text

    def read(self, stage: StageSpec, inputs: Inputs) -> None:
        """Read the anchors, and refuse a text that is too small."""
        from st_jtcse import data
        from st_jtcse.data.fitted_maps import check_count

        rows = inputs.sentences
        if isinstance(rows, data.Sentences):
            try:
                check_count(len(rows.dataset))
            except UserError as error:
                raise UserError(f"Stage {stage.name!r}: {error}") from None
            data.needs_index(len(rows.dataset))
        sources = self.of(stage).anchors
        if sources is not None:
            inputs.read_beside(_ANCHORS, sources)

    def demands(self, job: Job, scale: Scale, texts: int) -> Iterator[Demand]:
        """The start's vectors, in float32, and those that maps lead to."""
        start = Taught([job.model], [1.0], "sum")
        yield start.demand("start's vectors", job, scale, texts, component=4)
        for _, _, step in self.of(job.stage).steps:
            if step.towards is not None:
                taught = Taught(*loaded(job, step.towards.teachers), "sum")
                yield taught.demand("vectors that a map leads to", job, scale, texts)

    def ahead(self, job: Job) -> Iterator[Callable[[], Any]]:
        """The start's vectors, of what is held out too, and those that maps lead to."""
        texts = [job.sentences, job.inputs.read.get(_ANCHORS), job.inputs.kept_out]
        for text in texts:
            if text is not None:
                yield partial(_encoded, job, text)
        for _, _, step in self.of(job.stage).steps:
            if step.towards is not None:
                yield partial(_targets, job, step.towards)

    def begin(self, job: Job) -> None:
        """Fit the maps, and choose among them. Raises UserError."""
        own: MapsSpec = self.of(job.stage)
        _check_form(job, own)
        try:
            job.shared[Mapped] = _Fitting(job, own).result()
        except UserError as error:
            raise UserError(f"Stage {job.stage.name!r}: {error}") from None

    def finish(self, job: Job) -> None:
        """Append the maps; in a rehearsal those of their shape. Raises UserError."""
        from st_jtcse.modules.closed_forms import append_maps

        own: MapsSpec = self.of(job.stage)
        if job.small:
            _check_form(job, own)
            maps = _stand_ins(job, own)
        else:
            maps, job.record["maps"] = job.shared[Mapped]
        if maps:
            append_maps(job.model, maps, normalize=own.normalize)

    def card(self, record: Mapping[str, Any]) -> str:
        """Say which maps there are."""
        found = record.get("maps")
        if not found:
            return ""
        if not found["chosen"]:
            return "No linear map of the embeddings was better than none, so there is none."
        return (
            f"Its last layers are linear maps ({found['chosen']}), fitted in closed form on the "
            "training text."
        )


class _Fitting:
    """The maps of a stage as they are fitted and compared."""

    def __init__(self, job: Job, own: MapsSpec) -> None:
        self._job, self._own = job, own
        self._known: dict[str, list[Vectors]] = {}
        self._text = _encoded(job, job.sentences)
        self._anchors = None
        if _ANCHORS in job.inputs.read:
            self._anchors = _encoded(job, job.inputs.read[_ANCHORS])[:]

    def result(self) -> tuple[Maps, dict[str, Any]]:
        """Return the maps, none where the start is better, and what the record says of them."""
        from st_jtcse.data.fitted_maps import fit_maps, held_in_place

        ways = []
        for way in self._own.ways:
            maps = fit_maps(self._text, [self._step(step) for step in way])
            if self._anchors is not None:
                share = self._own.anchor_share
                maps = [held_in_place(self._text, maps, self._anchors, share)]
            ways.append(maps)
        names = self._own.names
        evaluate = self._job.stage.evaluate
        if evaluate is None or evaluate.dev is None:
            maps, share = self._within(ways[0], evaluate)
            return maps, {"chosen": names[0] if maps else "", "share": share}
        return self._best(names, ways, evaluate)

    def _step(self, spec: MapSpec) -> Step:
        from st_jtcse.data import fitted_maps

        if spec.towards is None:
            return step_of(spec)
        targets = _targets(self._job, spec.towards)
        return fitted_maps.Towards(targets, spec.towards.ridge, spec.towards.towards_identity)

    def _best(
        self, names: Sequence[str], ways: Sequence[Maps], evaluate: EvaluateSpec
    ) -> tuple[Maps, dict[str, Any]]:
        kept = [([], 1.0), *(self._within(way, evaluate) for way in ways)]
        dev = self._dev([maps for maps, _ in kept])
        entries = [
            Entry(name, self._score(dev, maps), self._general(maps, evaluate), share)
            for name, (maps, share) in zip(["start", *names], kept)
        ]
        limits = self._limits(evaluate)
        chosen = winner(entries, limits)
        record = told(self._job.stage.name, entries, chosen, limits)
        return kept[chosen][0], record

    def _within(self, maps: Maps, evaluate: EvaluateSpec | None) -> tuple[Maps, float]:
        """Return maps mixed with the identity, as far as general sets need it, and their share."""
        limits = self._limits(evaluate)
        if evaluate is None or not limits.allowed:
            return maps, 1.0
        start = Entry("start", 0.0, self._general([], evaluate))
        same_size = all(len(each.matrix) == len(each.bias) for each in maps)
        for share in SHARES if same_size else SHARES[:1]:
            mixed = [each.mixed(share) for each in maps]
            if Entry("mixed", 0.0, self._general(mixed, evaluate)).keeps(start, limits):
                return mixed, share
        return [], 0.0

    def _limits(self, evaluate: EvaluateSpec | None) -> Limits:
        from st_jtcse.training.limits import limits_of

        return limits_of(evaluate, self._job.inputs.evaluators)

    def _general(self, maps: Maps, evaluate: EvaluateSpec) -> dict[str, float]:
        sets = self._job.inputs.sets
        return {name: self._score(sets[name], maps) for name in evaluate.general}

    def _score(self, own: OwnSet, maps: Maps) -> float:
        from st_jtcse.data.fitted_maps import apply_maps

        columns = (apply_maps(maps, vectors) for vectors in self._vectors_of(own))
        return 100 * own.score(own.measure(*columns))

    def _vectors_of(self, own: OwnSet) -> list[Vectors]:
        """Return the start's vectors of a set, of length 1, computed once."""
        from st_jtcse.evaluation.shared_encoding import found_together

        if own.name not in self._known:
            model = self._job.model
            self._known[own.name] = found_together(model, partial(own.vectors, model))
        return self._known[own.name]

    def _dev(self, ways: Sequence[Maps]) -> OwnSet:
        """Return the set that chooses; without labels it is made of the ways themselves."""
        from st_jtcse.data.fitted_maps import Text, apply_maps

        job = self._job
        if DEV not in job.inputs.sets:
            kept_out = job.inputs.kept_out
            assert kept_out is not None
            held = _encoded(job, kept_out)[:]
            some, held = Text(self._text).some(SAMPLE), Text(held).some(len(held))
            agreement(
                job,
                some,
                [apply_maps(maps, held) for maps in ways],
                [apply_maps(maps, some) for maps in ways],
            )
            self._known[job.inputs.sets[DEV].name] = [held]
        return job.inputs.sets[DEV]


def _encoded(job: Job, text: data.Sentences) -> Encoded:
    from st_jtcse.data.encoded import encoded

    return encoded(job.model, text.dataset, text.sha256, job.cache_dir)


def _targets(job: Job, spec: TowardsSpec) -> Any:
    text = job.sentences
    taught = Taught(*loaded(job, spec.teachers), "sum")
    labelled = taught.labelled(text.dataset, text.sha256, job.cache_dir)
    return labelled.with_format("numpy")["label"]


def step_of(spec: MapSpec) -> Step:
    """Return what fits a map that needs nothing but the text's vectors."""
    from st_jtcse.data import fitted_maps

    if spec.drawn is not None:
        return fitted_maps.Drawn(spec.drawn.count, spec.drawn.weight, spec.drawn.ridge)
    if spec.axes is not None:
        return fitted_maps.ScaledAxes(spec.axes)
    if spec.top_axes is not None:
        return fitted_maps.WithoutTop(spec.top_axes)
    if spec.centred:
        return fitted_maps.Centred()
    return fitted_maps.WithoutMeanDirection()


def _check_form(job: Job, own: MapsSpec) -> None:
    from sentence_transformers.sentence_transformer.modules import Normalize

    if isinstance(job.model[-1], Normalize):
        return
    if not own.normalize:
        raise UserError(
            f"Stage {job.stage.name!r}: the model's embeddings are not of length 1 and a map's "
            "are, so its dot products and distances would change; set maps.normalize to true if "
            "you compare by the cosine."
        )
    logger.warning(
        "%s: the embeddings get length 1, which the model's were not; cosines stay the same",
        job.stage.name,
    )


def _stand_ins(job: Job, own: MapsSpec) -> Maps:
    """Return maps that change nothing but the size, as the last way does."""
    import numpy as np

    from st_jtcse.data.teachers import label_size
    from st_jtcse.modules.closed_forms import AffineMap

    size = int(job.model.get_embedding_dimension() or 0)
    sizes = [size, size]
    for way in own.ways:
        found = [label_size(loaded(job, step.towards.teachers)[0]) for step in way if step.towards]
        sizes = [size, *(found or [size])]
    return [AffineMap(np.eye(now, then), np.zeros(then)) for now, then in pairwise(sizes)]
