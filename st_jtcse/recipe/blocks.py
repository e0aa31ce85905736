"""What blocks of a recipe are made of: their base, sources of rows, and frozen models."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal

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

from st_jtcse.pooling_names import PoolingName
from st_jtcse.wording import shown

Text = Annotated[str, Field(min_length=1)]
Folder = Annotated[Text, AfterValidator(os.path.expanduser)]
# The name of the set that chooses checkpoints.
DEV = "dev"
ATTENTION: Any = Field(
    None,
    min_length=1,
    description="transformers' name of an attention, e.g. sdpa or flash_attention_2; null: the "
    "model's own.",
)
DTYPE: Any = Field(
    None,
    description="Number format of the weights as they are loaded, trained and saved; auto: the "
    "model's own; null: float32 where they are trained, else the model's own.",
)
Dtype = Literal["float32", "bfloat16", "float16", "auto"]


class Block(BaseModel):
    """Base of every block: unknown keys are refused and values are not coerced across types."""

    # Infinity is a value like others, as of args.max_grad_norm; JSON would have null in its place.
    model_config = ConfigDict(
        extra="forbid", frozen=True, strict=True, ser_json_inf_nan="constants"
    )

    # By the key that says what kind of block it is: the keys that it may then not give.
    kinds: ClassVar[Mapping[str, tuple[str, ...]]] = {}

    def _foreign(self) -> tuple[str, ...]:
        return next((keys for kind, keys in self.kinds.items() if getattr(self, kind)), ())

    def _given(self, keys: tuple[str, ...]) -> str | None:
        """Return the first of the keys whose value is not its default."""
        fields = type(self).model_fields
        for key in keys:
            if getattr(self, key) != fields[key].get_default(call_default_factory=True):
                return key
        return None

    def _unwritten(self) -> set[str]:
        """Name the keys that say nothing in a file: foreign ones, and nulls that are defaults."""
        fields = type(self).model_fields
        nulls = {key for key in fields if fields[key].default is getattr(self, key) is None}
        return nulls.union(self._foreign())

    @model_serializer(mode="wrap")
    def _loadable(self, dump: SerializerFunctionWrapHandler) -> dict[str, Any]:
        unwritten = self._unwritten()
        return {key: value for key, value in dump(self).items() if key not in unwritten}


def _named_columns(value: Any) -> Any:
    """Refuse what is neither names of columns nor columns by the names that are expected."""
    names = [*value, *value.values()] if isinstance(value, dict) else value
    if isinstance(names, list) and names and all(isinstance(name, str) for name in names):
        return value
    raise ValueError(
        "expected columns, as in [question, answer] or {query: question, relevant: answer}, found "
        f"{shown(value)}. Correct it."
    )


Columns = Annotated[list[str] | dict[str, str], BeforeValidator(_named_columns)]


class SourceSpec(Block):
    """Where rows come from: a local file or the arguments of `datasets.load_dataset`."""

    kinds = {"file": ("config", "split", "fit_split", "data_files", "revision")}

    file: Text | None = Field(
        None,
        description="Local text (one sentence per line), JSONL, CSV or Parquet file, or a folder "
        "of images, in folders by label where there are labels; a relative path starts at the "
        "recipe's folder.",
    )
    dataset: Text | None = Field(
        None,
        description="Hub id or folder for `datasets.load_dataset`; a folder given as ./ or ../ "
        "starts at the recipe's folder.",
    )
    config: str | None = Field(None, description="Configuration name of `dataset`.")
    split: str = Field("train", description="Split of `dataset`.")
    fit_split: str | None = Field(
        None,
        description="For evaluation on labelled images: split of `dataset` that the linear "
        "classifier is fitted on; null: cross-validation.",
    )
    data_files: str | None = Field(None, description="File inside `dataset`.")
    revision: str | None = Field(None, description="Commit, tag or branch of `dataset`.")
    columns: Columns | None = Field(
        None,
        description="Columns to read: sentence columns for training (default: sentence; each "
        "column adds its sentences; of images one column, default: image), [first, second, score] "
        "of graded pairs for evaluation (default: by the names that are there). Or what your file "
        "calls the columns of that kind, e.g. {query: question, relevant: answer}.",
    )
    limit: int | None = Field(None, ge=1, description="Keep the first rows only.")

    @model_validator(mode="after")
    def _one_origin(self) -> SourceSpec:
        self._check_origin()
        return self

    def _check_origin(self) -> None:
        if (self.file is None) == (self.dataset is None):
            found = "neither" if self.file is None else "both"
            raise ValueError(
                f"expected exactly one of 'file' and 'dataset', found {found}. Give one of them."
            )
        if key := self._given(self._foreign()):
            wanted, found = ("dataset", "file") if self.dataset is None else ("file", "dataset")
            raise ValueError(
                f"expected a '{wanted}' beside '{key}', found a '{found}'. Remove '{key}'."
            )


def shorthand(key: str) -> BeforeValidator:
    """Let a text stand for a block of one key."""
    return BeforeValidator(lambda value: {key: value} if isinstance(value, str) else value)


def list_shorthand(value: Any) -> Any:
    """Let one item stand for a list of one."""
    return value if isinstance(value, list) else [value]


Source = Annotated[SourceSpec, shorthand("file")]
Sources = Annotated[list[Source], BeforeValidator(list_shorthand), Field(min_length=1)]


class WeightedModelSpec(Block):
    """A frozen model with its factor in a weighted sum of embeddings."""

    model: Text = Field(description="Written as a model's `base`.")
    weight: float = Field(
        1.0, allow_inf_nan=False, description="Factor in the weighted sum of embeddings."
    )
    pooling: PoolingName | None = Field(
        None,
        description="Pooling; default: the model's own. A plain encoder has none, so name one.",
    )
    attn_implementation: str | None = ATTENTION
    dtype: Dtype | None = DTYPE
    revision: str | None = Field(None, description="Commit, tag or branch of a Hub model.")
    trust_remote_code: bool = Field(False, description="Run code that comes with the model.")
