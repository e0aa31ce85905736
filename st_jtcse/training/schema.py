"""The shape of a recipe; each field's description is the only text of that option."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    SerializerFunctionWrapHandler,
    model_serializer,
    model_validator,
)

NAME_PATTERN = r"^[A-Za-z0-9][A-Za-z0-9_.-]*$"
NAME_RULE = "letters, digits, '_', '.' or '-', starting with a letter or digit"
STAGE_PREFIX = "stage:"

_DATASET_ONLY = ("config", "split", "data_files", "revision")
_TWIN_ONLY = ("cross_attention_every", "cross_residual")


class Strict(BaseModel):
    """Base of every block: unknown keys are refused and values are not coerced across types."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    def _foreign(self) -> tuple[str, ...]:
        """Name the keys that this kind of block may not give."""
        return ()

    @model_serializer(mode="wrap")
    def _loadable(self, dump: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Leave out what could not be loaded again or says nothing: foreign keys, and nulls that are defaults."""
        data: dict[str, Any] = dump(self)
        fields = type(self).model_fields
        return {
            key: value
            for key, value in data.items()
            if key not in self._foreign() and (value is not None or fields[key].default is not None)
        }


class SourceSpec(Strict):
    """Where rows come from: a local file or the arguments of `datasets.load_dataset`."""

    file: str | None = Field(
        None,
        min_length=1,
        description="Local text (one sentence a line), JSONL, CSV or Parquet file; a relative path starts at the "
        "recipe's folder.",
    )
    dataset: str | None = Field(
        None,
        min_length=1,
        description="Hub id or folder for `datasets.load_dataset`; a folder given as ./ or ../ starts at the "
        "recipe's folder.",
    )
    config: str | None = Field(None, description="Configuration name of `dataset`.")
    split: str = Field("train", description="Split of `dataset`.")
    data_files: str | None = Field(None, description="File inside `dataset`.")
    revision: str | None = Field(None, description="Commit, tag or branch of `dataset`.")
    columns: list[str] | None = Field(
        None,
        min_length=1,
        description="Columns to read: sentence columns for training (default: sentence; each column adds its "
        "sentences), [first, second, score] for evaluation (default: sentence1, sentence2, score).",
    )
    limit: int | None = Field(None, ge=1, description="Keep the first rows only.")

    @model_validator(mode="after")
    def _one_origin(self) -> SourceSpec:
        if (self.file is None) == (self.dataset is None):
            found = "neither" if self.file is None else "both"
            raise ValueError(f"expected exactly one of 'file' and 'dataset', found {found}. Give one of them.")
        foreign = [key for key in self._foreign() if key in self.model_fields_set]
        if foreign:
            raise ValueError(f"expected a 'dataset' beside '{foreign[0]}', found a 'file'. Remove '{foreign[0]}'.")
        return self

    def _foreign(self) -> tuple[str, ...]:
        return _DATASET_ONLY if self.dataset is None else ()


def _file_shorthand(value: Any) -> Any:
    return {"file": value} if isinstance(value, str) else value


def _list_shorthand(value: Any) -> Any:
    return value if isinstance(value, list) else [value]


Source = Annotated[SourceSpec, BeforeValidator(_file_shorthand)]
Sources = Annotated[list[Source], BeforeValidator(_list_shorthand), Field(min_length=1)]


class DataSpec(Strict):
    """What a stage trains on."""

    train: Sources = Field(description="A source or a list of sources; their sentences are joined in order.")


class EvaluateSpec(Strict):
    """Graded sentence pairs: `dev` chooses the checkpoint, `test` is only reported."""

    dev: Source | None = Field(None, description="Pairs whose cosine Spearman chooses the checkpoint.")
    test: dict[str, Source] = Field(default_factory=dict, description="Pairs to report, by the name to show.")
    score_range: tuple[float, float] = Field(
        (0.0, 5.0), description="Lowest and highest score allowed in the pairs.", strict=False
    )

    @model_validator(mode="after")
    def _ordered(self) -> EvaluateSpec:
        low, high = self.score_range
        if not low < high:
            raise ValueError(
                f"expected the lower score first in 'score_range', found [{low:g}, {high:g}]. Swap them or widen it."
            )
        return self


class ModelSpec(Strict):
    """The model a stage starts from: one encoder (`base`) or two (`towers`)."""

    base: str | None = Field(
        None,
        min_length=1,
        description="'embedded', a folder, a Hub id, or 'stage:NAME' for an earlier stage's model; a folder given as "
        "./ or ../ starts at the recipe's folder.",
    )
    towers: list[Annotated[str, Field(min_length=1)]] | None = Field(
        None, min_length=2, max_length=2, description="The two encoders of a twin, each written as for `base`."
    )
    cross_attention_every: int | None = Field(
        2, ge=1, description="A cross-attention layer after every k-th layer of a twin; null for none."
    )
    cross_residual: Literal["stream", "local"] = Field(
        "stream", description="Residual of a twin's cross stream: its own stream, or the tower's hidden state."
    )
    pooling: Literal["cls", "mean", "max"] = Field("cls", description="Pooling of the last hidden state.")
    max_seq_length: int | None = Field(None, ge=4, description="Longest input in tokens; longer ones are cut.")
    dropout: float | None = Field(
        None, ge=0, lt=1, description="Hidden and attention dropout in training; null keeps the model's own."
    )
    layers: list[Annotated[int, Field(ge=0)]] | None = Field(
        None, min_length=1, description="Keep only these layers of `base` (0 is the first), for a shallower student."
    )
    revision: str | None = Field(None, description="Commit, tag or branch of a Hub model.")
    trust_remote_code: bool = Field(False, description="Run code that comes with the model.")

    @model_validator(mode="after")
    def _one_kind(self) -> ModelSpec:
        if (self.base is None) == (self.towers is None):
            found = "neither" if self.base is None else "both"
            raise ValueError(f"expected exactly one of 'base' and 'towers', found {found}. Give one of them.")
        foreign = [key for key in self._foreign() if key in self.model_fields_set]
        if foreign:
            raise ValueError(f"expected 'towers' beside '{foreign[0]}', found 'base'. Remove '{foreign[0]}'.")
        if self.towers is not None and (self.pooling != "cls" or self.layers is not None):
            key = "layers" if self.layers is not None else "pooling"
            raise ValueError(f"expected a twin, which sums its towers' CLS states, found '{key}'. Remove '{key}'.")
        if self.layers is not None and self.layers != sorted(set(self.layers)):
            raise ValueError(f"expected each of 'layers' once, in rising order, found {self.layers}. Sort them.")
        return self

    def _foreign(self) -> tuple[str, ...]:
        return _TWIN_ONLY if self.towers is None else ()


class LossSpec(BaseModel):
    """A loss by class name; every other key is an argument of that class."""

    model_config = ConfigDict(extra="allow", frozen=True)

    type: str = Field(description="Name of a loss of st_jtcse or of Sentence-Transformers.")

    @property
    def arguments(self) -> dict[str, Any]:
        """Keyword arguments of the loss class beside `model`."""
        return dict(self.model_extra or {})


class TeacherSpec(Strict):
    """A frozen model whose embeddings are the training labels."""

    model: str = Field(min_length=1, description="Written as a model's `base`.")
    weight: float = Field(
        1.0, allow_inf_nan=False, description="Factor of this teacher in the weighted sum of embeddings."
    )


class StageSpec(Strict):
    """One training run."""

    name: str = Field(pattern=NAME_PATTERN, description="Folder name of the stage; later stages use stage:NAME.")
    model: ModelSpec = Field(description="What the stage starts from.")
    data: DataSpec | None = Field(None, description="Training data; default: the recipe's.")
    loss: LossSpec = Field(description="The training objective.")
    args: dict[str, Any] = Field(
        default_factory=dict,
        description="SentenceTransformerTrainingArguments, verbatim; laid over the recipe's `args`.",
    )
    evaluate: EvaluateSpec | None = Field(None, description="Evaluation pairs; default: the recipe's.")
    teachers: list[TeacherSpec] = Field(
        default_factory=list, description="Teachers whose summed embeddings become the label column."
    )


class Recipe(Strict):
    """A whole run: stages in order, under one seed and one output folder."""

    name: str = Field(pattern=NAME_PATTERN, description="Short name of the run.")
    description: str = Field("", description="What the run reproduces, in one or two sentences.")
    seed: int = Field(42, ge=0, lt=2**32, description="Every random choice of the run follows from it.")
    output_dir: str = Field(
        min_length=1, description="Folder of the run; a relative path starts at the current folder."
    )
    data: DataSpec | None = Field(None, description="Training data of every stage that names none.")
    args: dict[str, Any] = Field(default_factory=dict, description="Training arguments common to all stages.")
    evaluate: EvaluateSpec | None = Field(None, description="Evaluation pairs of every stage that names none.")
    stages: list[StageSpec] = Field(min_length=1, description="Training runs, in order.")
