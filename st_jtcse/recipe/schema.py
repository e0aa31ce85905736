"""The shape of a recipe; each field's description is the only text of that option."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_args

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    SerializerFunctionWrapHandler,
    model_serializer,
    model_validator,
)

from st_jtcse.pooling_names import TowerPoolingName, TrainedPoolingName
from st_jtcse.recipe.ability import Need, given, with_abilities
from st_jtcse.recipe.blocks import (
    ATTENTION,
    DTYPE,
    Block,
    Dtype,
    Folder,
    Text,
    WeightedModelSpec,
    list_shorthand,
)
from st_jtcse.recipe.choices import CHOICES, Effort, OnlySpec, Purpose, left_out_of
from st_jtcse.recipe.data_blocks import DataSpec, EvaluateSpec
from st_jtcse.recipe.extends import FOREIGN
from st_jtcse.recipe.yaml_source import Loc
from st_jtcse.wording import NAME_PATTERN, shown

if TYPE_CHECKING:
    from st_jtcse.losses.declaration import LossDeclaration

STAGE_PREFIX = "stage:"
# Far above any sweep, far below what takes the memory of a machine.
_MOST_SEEDS = 10_000
# transformers' own.
BATCH_SIZE = 8
# Keys of a `model` that the recipe cannot give for all stages.
OF_ONE_STAGE = ("towers", "members", "cross_encoder", "num_labels", "tower", "layers", "fresh")


@with_abilities("model")
class ModelSpec(Block):
    """The model a stage starts from: an encoder, two (`towers`), an ensemble (`members`) or a
    `cross_encoder`.
    """

    # 'pooling' beside `towers` takes any encoders alone.
    kinds = FOREIGN["model"] | {
        "towers": tuple(key for key in FOREIGN["model"]["towers"] if key != "pooling")
    }

    base: Text | None = Field(
        None,
        description="'embedded', a folder, a Hub id, or 'stage:NAME' for an earlier stage's model; "
        "a folder given as ./ or ../ starts at the recipe's folder.",
    )
    towers: list[Text] | None = Field(
        None,
        min_length=2,
        max_length=2,
        description="The two encoders of a twin, each written as for `base`.",
    )
    members: list[WeightedModelSpec] | None = Field(
        None,
        min_length=1,
        description="Models whose embeddings are summed; such a stage has no loss.",
    )
    cross_encoder: Text | None = Field(
        None, description="Backbone of a cross-encoder, written as for `base`."
    )
    num_labels: int = Field(1, ge=1, le=1_000_000, description="Outputs of a cross-encoder.")
    cross_attention_every: int | None = Field(
        2,
        ge=1,
        description="A cross-attention layer after every k-th layer of a twin; null for none.",
    )
    cross_residual: Literal["stream", "local", "layers"] = Field(
        "stream",
        description="Residual of a twin's cross stream: stream, its own; local, the tower's hidden "
        "state; layers, its own, which the ordinary layers between cross-attention layers change "
        "too.",
    )
    random_pooler: bool = Field(
        False,
        description="Draw random poolers for towers that have none; otherwise such towers are "
        "refused.",
    )
    pooling: TrainedPoolingName | None = Field(
        None,
        description="How token states become an embedding. Default: the model's own modules, "
        "prompts and length; a plain encoder has none, so name a pooling, which replaces all "
        "three. One of Sentence-Transformers' Pooling by its name; first_last: mean of the first "
        "and the last layer's tokens; attention: a learned mean over tokens (the model then loads "
        "only with trust_remote_code); pooler: the towers' poolers. A twin pools each tower by "
        "cls, mean, first_last, lasttoken or pooler and sums the two.",
    )
    template: Text | None = Field(
        None,
        description="In place of a pooling: a prompt around each text, [X], whose [MASK] is the "
        "embedding, e.g. 'This sentence : \"[X]\" means [MASK].' (PromptBERT).",
    )
    max_seq_length: int | None = Field(
        None, ge=4, description="Longest input in tokens; longer ones are cut."
    )
    attn_implementation: str | None = ATTENTION
    dtype: Dtype | None = DTYPE
    training_head: bool | Literal["kept"] = Field(
        False,
        description="Train through a linear layer with tanh on the embedding. true: drop it "
        "afterwards (SimCSE's MLP); kept: keep it, its output is the embedding (LS-RNS).",
    )
    tower: Literal[1, 2] | None = Field(
        None, description="Start from this tower of `base`, a twin."
    )
    layers: list[Annotated[int, Field(ge=0)]] | None = Field(
        None,
        min_length=1,
        description="Keep only these layers of `base` (0 is the first), for a shallower student.",
    )
    fresh: dict[str, int] | None = Field(
        None,
        description="Random weights: `base`'s configuration with these values changed, e.g. "
        "num_hidden_layers.",
    )
    revision: str | None = Field(None, description="Commit, tag or branch of a Hub model.")
    trust_remote_code: bool = Field(False, description="Run code that comes with the model.")

    @model_validator(mode="after")
    def _one_kind(self) -> ModelSpec:
        given = [kind for kind in self.kinds if getattr(self, kind) is not None]
        if len(given) != 1:
            found = " and ".join(map(repr, given)) or "none of them"
            raise ValueError(
                f"expected exactly one of {', '.join(map(repr, self.kinds))}, found {found}. Give "
                "one."
            )
        if key := self._given(self._foreign()):
            raise ValueError(f"expected no '{key}' beside '{given[0]}', found one. Remove '{key}'.")
        if self.template is not None and self.pooling is not None:
            raise ValueError(
                f"expected no 'pooling' beside 'template', found '{self.pooling}'. Remove one."
            )
        if self.towers is not None and self.pooling not in (None, *get_args(TowerPoolingName)):
            known = ", ".join(get_args(TowerPoolingName))
            raise ValueError(
                f"expected {known} as 'pooling' of a twin, found '{self.pooling}'. Correct or "
                "remove it."
            )
        if self.layers is not None and self.layers != sorted(set(self.layers)):
            raise ValueError(
                f"expected each of 'layers' once, in rising order, found {self.layers}. Sort them."
            )
        if self.layers is not None and self.fresh is not None:
            raise ValueError(
                "expected one of 'layers', which keeps weights, and 'fresh', which draws them, "
                "found both. Remove one."
            )
        return self

    @property
    def scores_pairs(self) -> bool:
        """Whether it is a cross-encoder, which embeds no text."""
        return self.cross_encoder is not None

    @property
    def models(self) -> dict[Loc, str]:
        """The models it is made from, as written, by their place in the block."""
        if self.members is not None:
            return {
                ("members", at, "model"): member.model for at, member in enumerate(self.members)
            }
        if self.towers is not None:
            return {("towers", at): tower for at, tower in enumerate(self.towers)}
        key = "base" if self.cross_encoder is None else "cross_encoder"
        return {(key,): str(getattr(self, key))}


class ModelDefaults(ModelSpec):
    """Keys for the `model` of every stage that they go with; a stage's own come first."""

    @model_validator(mode="after")
    def _one_kind(self) -> ModelDefaults:
        if key := self._given(OF_ONE_STAGE):
            raise ValueError(
                f"expected keys that stages share, found '{key}'. Move it into a stage's 'model'."
            )
        return self


@with_abilities("loss")
class LossSpec(BaseModel):
    """A loss by class name; every other key is an argument of that class."""

    model_config = ConfigDict(extra="allow", frozen=True)

    type: str = Field(description="Name of a loss of st_jtcse or of Sentence-Transformers.")

    @model_serializer(mode="wrap")
    def _as_written(self, dump: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Leave out what this class has for all losses where it is not given; an argument may be
        null.
        """
        fields = type(self).model_fields
        return {
            key: value
            for key, value in dump(self).items()
            if value is not None or key not in fields
        }

    @property
    def arguments(self) -> dict[str, Any]:
        """Keyword arguments of the loss class beside `model`."""
        return dict(self.model_extra or {})


@with_abilities("stage")
class StageSpec(Block):
    """One training run."""

    name: str = Field(
        pattern=NAME_PATTERN, description="Folder name of the stage; later stages use stage:NAME."
    )
    model: ModelSpec = Field(description="What the stage starts from.")
    data: DataSpec | None = Field(
        None,
        description="Training data; default: the recipe's. A block without a source changes single "
        "keys of the recipe's.",
    )
    loss: LossSpec | None = Field(
        description="The training objective; null: the model is assembled, saved and evaluated as "
        "it is."
    )
    args: dict[str, Any] = Field(
        default_factory=dict,
        description="SentenceTransformerTrainingArguments, verbatim; they override the recipe's "
        "`args`.",
    )
    evaluate: EvaluateSpec | None = Field(
        None, description="Evaluation sets; default: the recipe's."
    )
    only: OnlySpec | None = Field(
        None, description="The runs that the stage is part of; default: all."
    )
    reported_as: str | None = Field(
        None,
        description="This model's name in the papers' tables; its card shows their figures beside "
        "those of an evaluation, if the bundled recipe is unchanged.",
    )

    @model_validator(mode="after")
    def _trained_or_assembled(self) -> StageSpec:
        if self.loss is not None and self.model.members is not None:
            raise ValueError(
                "expected 'loss: null' beside 'members', found a loss. Distil it in a later stage."
            )
        return self

    @property
    def models(self) -> dict[Loc, str]:
        """The models that the stage starts from and reads, as written, by their place in the
        stage.
        """
        found: dict[Loc, str] = {("model", *loc): name for loc, name in self.model.models.items()}
        for loc, frozen in self.frozen_models.items():
            found[(*loc, "model")] = frozen.model
        return found

    @property
    def frozen_models(self) -> dict[Loc, WeightedModelSpec]:
        """The models that the stage's abilities read, by the place of their blocks."""
        found: dict[Loc, WeightedModelSpec] = {}
        for ability in given(self):
            found |= ability.models(self)
        return found

    @property
    def reads_rows(self) -> bool:
        """Whether training data are read for the stage."""
        return self.loss is not None or any(Need.ROWS in own.needs(self) for own in given(self))

    @property
    def training_data(self) -> DataSpec | None:
        """The data that are read for the stage; None where nothing is."""
        return self.data if self.reads_rows else None

    @property
    def has_sentences(self) -> bool:
        """Whether its data are sentences."""
        return self.data is not None and self.data.train is not None

    @property
    def batch_size(self) -> int:
        """Rows of a batch on one device."""
        return int(self.args.get("per_device_train_batch_size", BATCH_SIZE))

    @property
    def earlier(self) -> list[str]:
        """Names of the stages that the stage needs finished."""
        referred = (name for name in self.models.values() if name.startswith(STAGE_PREFIX))
        return [name.removeprefix(STAGE_PREFIX) for name in referred]

    @property
    def declaration(self) -> LossDeclaration:
        """What its loss is, or nothing said if it has none; raises UserError for a loss that is not
        known.
        """
        # Take seconds to import.
        from st_jtcse.losses import catalogue, declaration

        if self.loss is None:
            return declaration.LossDeclaration()
        return catalogue.declaration_of(
            catalogue.loss_class(self.loss.type, self.model.scores_pairs)
        )

    @property
    def classes(self) -> tuple[int, Loc] | None:
        """How many classes the labels have, and the key that says so, empty if the loss fits no
        other number.
        """
        classes = self.declaration.classes
        if isinstance(classes, int):
            return classes, ()
        if classes == "outputs":
            return self.model.num_labels, ("model", "num_labels")
        count = self.loss.arguments.get(classes) if self.loss and classes else None
        if isinstance(count, int):
            return (count, ("loss", str(classes)))
        return None


def _language_code(value: str) -> str:
    if not re.fullmatch("[a-z]{2,3}", value):
        raise ValueError(
            f"expected a code of two or three letters, found {shown(value)}. Write en for English."
        )
    return value


class CardSpec(Block):
    """What the model cards of a run say that only its maker knows."""

    license: Text | None = Field(
        None, description="Licence of the models, as the Hub spells it: mit."
    )
    language: list[Annotated[str, AfterValidator(_language_code)]] = Field(
        default_factory=list, description="Languages of the training text, by ISO 639 code: [en]."
    )


class PushSpec(Block):
    """Where the models of a run go on the Hub, once all stages are finished."""

    repos: dict[str, str] = Field(
        min_length=1, description="Repository by stage, e.g. joint: org/jtcse-bert."
    )
    private: bool = Field(True, description="Whether new repositories are private.")
    collection: Text | None = Field(
        None, max_length=60, description="Title of a collection to add the models to."
    )


def _range_shorthand(value: Any) -> Any:
    ends = re.fullmatch(r"(\d{1,10})\.\.(\d{1,10})", value) if isinstance(value, str) else None
    if ends is None:
        return value
    first, last = int(ends[1]), int(ends[2])
    if last - first >= _MOST_SEEDS:
        found = f"found {last - first + 1:,}"
        raise ValueError(f"expected at most {_MOST_SEEDS:,} seeds, {found}. Write fewer.")
    return list(range(first, last + 1))


class Recipe(Block):
    """A whole run: stages in order, under one seed and one output folder."""

    name: str = Field(pattern=NAME_PATTERN, description="Short name of the run.")
    extends: None = Field(
        None,
        description="The recipe that this one changes: a bundled name, or a file, whose relative "
        "path starts at this recipe's folder. Only in a file, not by --set.",
    )
    description: str = Field("", description="What the run reproduces, in one or two sentences.")
    method: Text | None = Field(None, description="The method, e.g. JTCSE.")
    needs: Text | None = Field(
        None, description="What a run needs, in a few words by which `st-train --list` groups."
    )
    seed: int = Field(42, ge=0, lt=2**32, description="Seed of every random choice in the run.")
    effort: Effort | None = Field(
        None,
        description="How much a run does, of a recipe whose stages say so by 'only': seconds, "
        "minutes or full.",
    )
    gained: dict[Effort, Text] | None = Field(
        None,
        description="What each 'effort' gained where it was measured, in a few words; the plan "
        "tells it beside about how long that takes here.",
    )
    purpose: Purpose | None = Field(
        None,
        description="What the model is for, in a recipe whose stages say so by 'only': topics or "
        "search; by_text: search for documents and passages of them, topics for lines of text.",
    )
    output_dir: Folder = Field(
        description="Folder of the run; a relative path starts at the current folder. Default: "
        "runs/NAME."
    )
    cache_dir: Folder | None = Field(
        None,
        description="Folder of round trips, teacher vectors and converted text, shared by runs and "
        "safe to delete; a relative path starts at the current folder. Default: st-jtcse in the "
        "Hugging Face cache.",
    )
    model: ModelDefaults | None = Field(
        None,
        description="Defaults for the `model` of every stage, as far as a key fits that kind of "
        "model.",
    )
    data: DataSpec | None = Field(
        None, description="Training data of every stage that has none of its own."
    )
    args: dict[str, Any] = Field(
        default_factory=dict, description="Training arguments common to all stages."
    )
    evaluate: EvaluateSpec | None = Field(
        None, description="Evaluation sets of every stage that has none of its own."
    )
    stages: list[StageSpec] = Field(min_length=1, description="Training runs, in order.")
    card: CardSpec | None = Field(None, description="Licence and languages for the model cards.")
    push: PushSpec | None = Field(None, description="Push models to the Hub after the run.")
    seeds: (
        Annotated[list[Annotated[int, Field(ge=0, lt=2**32)]], BeforeValidator(_range_shorthand)]
        | None
    ) = Field(
        None,
        min_length=1,
        description="Run everything with each of these seeds, not with `seed`; 1..5 means 1 to 5.",
    )
    sweep: (
        Annotated[
            list[dict[str, Annotated[list[Any], Field(min_length=1)]]],
            BeforeValidator(list_shorthand),
            Field(min_length=1),
        ]
        | None
    ) = Field(
        None,
        description="Run every combination of these values; keys are written as for --set, e.g. "
        "stages.joint.model.cross_attention_every: [1, 2, 3]. A list of such blocks: the "
        "combinations of each.",
    )

    @model_validator(mode="before")
    @classmethod
    def _folder_of_its_name(cls, data: Any) -> Any:
        if isinstance(data, dict) and data.get("output_dir") is None:
            return {**data, "output_dir": f"runs/{data.get('name')}"}
        return data

    @property
    def left_out(self) -> set[str]:
        """Names of the stages that are not part of the run."""
        return left_out_of(self.stages, self.model_dump(include=set(CHOICES)))

    @property
    def stages_of_run(self) -> list[StageSpec]:
        """The stages that are part of the run."""
        left_out = self.left_out
        return [stage for stage in self.stages if stage.name not in left_out]
