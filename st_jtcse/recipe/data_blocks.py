"""The blocks of a recipe about its data: sources, labels, evaluation pairs and round trips."""

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
    field_validator,
    model_serializer,
    model_validator,
)

from st_jtcse.recipe.extends import FOREIGN
from st_jtcse.wording import NAME_PATTERN

Text = Annotated[str, Field(min_length=1)]
Folder = Annotated[Text, AfterValidator(os.path.expanduser)]
# Name of the set that chooses checkpoints, and all by which a stage's record calls data that are
# not test sets.
DEV = "dev"
_TAKEN = (DEV, "train", "pair_scores", "anchors")

_OPUS_MT = "Helsinki-NLP/opus-mt-{}-{}"
# This model knows several written forms of Chinese and is told which one.
_OPUS_MT_PREFIXES = {"zh": ">>cmn_Hans<< "}


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


class SourceSpec(Block):
    """Where rows come from: a local file or the arguments of `datasets.load_dataset`."""

    kinds = {"file": ("config", "split", "fit_split", "data_files", "revision")}

    file: Text | None = Field(
        None,
        description="Local text (one sentence per line), JSONL, CSV or Parquet file, or a folder "
        "of images, in folders "
        "by label where there are labels; a relative path starts at the recipe's folder.",
    )
    dataset: Text | None = Field(
        None,
        description="Hub id or folder for `datasets.load_dataset`; a folder given as ./ or ../ "
        "starts at the "
        "recipe's folder.",
    )
    config: str | None = Field(None, description="Configuration name of `dataset`.")
    split: str = Field("train", description="Split of `dataset`.")
    fit_split: str | None = Field(
        None,
        description="For evaluation on labelled images: split of `dataset` that the linear "
        "classifier is fitted on; "
        "null: cross-validation.",
    )
    data_files: str | None = Field(None, description="File inside `dataset`.")
    revision: str | None = Field(None, description="Commit, tag or branch of `dataset`.")
    columns: list[str] | None = Field(
        None,
        min_length=1,
        description="Columns to read: sentence columns for training (default: sentence; each "
        "column adds its "
        "sentences; of images one column, default: image), [first, second, score] of graded pairs "
        "for evaluation "
        "(default: by the names that are there).",
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
            raise ValueError(
                f"expected a 'dataset' beside '{key}', found a 'file'. Remove '{key}'."
            )


class DevSpec(SourceSpec):
    """What chooses the checkpoint: a set, or held-out training text without labels."""

    kinds = {"unlabelled": tuple(SourceSpec.model_fields), **SourceSpec.kinds}

    unlabelled: bool = Field(
        False,
        description="Choose by held-out training sentences, without labels; 'dev: unlabelled' is "
        "short for it.",
    )

    def _check_origin(self) -> None:
        if not self.unlabelled:
            super()._check_origin()
        elif key := self._given(self._foreign()):
            raise ValueError(
                f"expected no '{key}' beside 'unlabelled', found one. Remove one of them."
            )


def shorthand(key: str) -> BeforeValidator:
    """Let a text stand for a block of one key."""
    return BeforeValidator(lambda value: {key: value} if isinstance(value, str) else value)


def _dev_shorthand(value: Any) -> Any:
    return {"unlabelled": True} if value == "unlabelled" else value


def list_shorthand(value: Any) -> Any:
    """Let one item stand for a list of one."""
    return value if isinstance(value, list) else [value]


Source = Annotated[SourceSpec, shorthand("file")]
Sources = Annotated[list[Source], BeforeValidator(list_shorthand), Field(min_length=1)]


def _check_order(low: float, high: float) -> None:
    if not low < high:
        raise ValueError(
            f"expected the lower score first in 'score_range', found [{low:g}, {high:g}]. Swap "
            "them or widen it."
        )


class DataSpec(Block):
    """What a stage trains on: sentences (`train`) or labelled rows (`pairs`); a stage may leave
    both to the recipe.
    """

    kinds = FOREIGN["data"]

    train: Sources | None = Field(
        None,
        description="Sentences or images: a source, or a list of sources to read one after the "
        "other.",
    )
    pairs: Sources | None = Field(
        None,
        description="Sources of labelled rows. Columns: sentence1, sentence2 and score or label; "
        "without labels "
        "anchor, positive, negative.",
    )
    streaming: bool = Field(
        False,
        description="Read the data sets of `train` while training, without an end, so that they "
        "need fit neither "
        "memory nor disk; sentences are mixed in a buffer of 10,000. `max_steps` says when to "
        "stop.",
    )
    labels: Literal["scores", "classes", "none"] = Field(
        "scores",
        description="What the label column of `pairs` is: graded similarity, whole numbers from 0, "
        "or absent.",
    )
    score_range: tuple[float, float] = Field(
        (0.0, 5.0),
        description="Lowest and highest possible score of `pairs`; they become 0 and 1.",
        strict=False,
    )
    mapping: dict[str, float] | None = Field(
        None,
        description="A number for each label as written in `pairs`, e.g. contradiction: 0, "
        "neutral: 1, entailment: 2.",
    )
    bins: int | None = Field(
        None,
        ge=2,
        description="With `labels: classes`: cut score_range into this many equal bins, which are "
        "the classes.",
    )

    @model_validator(mode="after")
    def _one_kind(self) -> DataSpec:
        if self.train is not None and self.pairs is not None:
            raise ValueError(
                "expected exactly one of 'train' and 'pairs', found both. Give one of them."
            )
        if self.streaming and (self.pairs or any(source.file for source in self.sources)):
            found = "'pairs'" if self.pairs else "a file"
            raise ValueError(
                f"expected a 'dataset' in 'train' beside 'streaming', found {found}. Remove "
                "'streaming'."
            )
        if key := self._given(self._foreign()):
            raise ValueError(f"expected 'pairs' beside '{key}', found 'train'. Remove '{key}'.")
        _check_order(*self.score_range)
        if self.bins is not None and self.labels != "classes":
            raise ValueError(
                f"expected 'labels: classes' beside 'bins', found '{self.labels}'. Set it, or "
                "remove 'bins'."
            )
        return self

    def _unwritten(self) -> set[str]:
        if self.sources:
            return super()._unwritten()
        # Each key that is written changes the recipe's, a default or a null too.
        unset = type(self).model_fields.keys() - self.model_fields_set
        return {"train", "pairs", *unset}

    @property
    def sources(self) -> list[SourceSpec]:
        """Where the rows come from."""
        return self.train or self.pairs or []


class EvaluateSpec(Block):
    """Sets of any kind that `st-eval --data` takes: `dev` chooses the checkpoint, `test` is only
    reported.

    Their columns say what they are; a cross-encoder takes graded pairs only.
    """

    dev: Annotated[DevSpec, shorthand("file"), BeforeValidator(_dev_shorthand)] | None = Field(
        None,
        description="Set whose score chooses the checkpoint; for graded pairs, the Spearman "
        "correlation of their "
        "cosines. 'unlabelled': held-out training sentences.",
    )
    test: dict[str, Source] = Field(
        default_factory=dict, description="Sets to report, by the name to show."
    )
    general: dict[str, Source] = Field(
        default_factory=dict,
        description="Sets that `retention` protects, by the name to show; they are reported too.",
    )
    retention: float | None = Field(
        None,
        ge=0,
        allow_inf_nan=False,
        description="How many points each set of `general` may lose at most; if one loses more, "
        "the trained weights "
        "are mixed with those of the start.",
    )
    score_range: tuple[float, float] = Field(
        (0.0, 5.0), description="Lowest and highest score allowed in the pairs.", strict=False
    )
    patience: int | None = Field(
        None,
        ge=1,
        description="Stop a stage after this many evaluations in a row without a new best score on "
        "`dev`.",
    )

    @field_validator("test", "general")
    @classmethod
    def _names_of_their_own(cls, test: dict[str, SourceSpec]) -> dict[str, SourceSpec]:
        for name in test:
            if not name.strip() or name in _TAKEN:
                taken = f"{', '.join(map(repr, _TAKEN[:-1]))} and {_TAKEN[-1]!r} are taken"
                raise ValueError(
                    f"expected a name of its own for each set ({taken}), found {name!r}. Choose "
                    "another."
                )
        return test

    @property
    def is_unlabelled(self) -> bool:
        """Whether held-out training sentences choose the checkpoint."""
        return self.dev is not None and self.dev.unlabelled

    @property
    def sets(self) -> dict[str, SourceSpec]:
        """All sets by name."""
        return ({DEV: self.dev} if self.dev else {}) | self.general | self.test

    @model_validator(mode="after")
    def _ordered(self) -> EvaluateSpec:
        _check_order(*self.score_range)
        if self.patience is not None and self.dev is None:
            raise ValueError(
                "expected 'dev' beside 'patience', found none. Give it, or remove 'patience'."
            )
        if self.retention is not None and not self.general:
            raise ValueError(
                "expected 'general' beside 'retention', found none. Name sets, or remove "
                "'retention'."
            )
        if both := self.general.keys() & self.test.keys():
            raise ValueError(
                f"expected each name once, found {min(both)!r} in 'general' and 'test'. Rename one."
            )
        return self


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
    mode: Literal["replace", "pair"] = Field(
        "replace",
        description="replace: train on the round trips; pair: on columns sentence and round_trip, "
        "the two views.",
    )
    beam_size: int = Field(1, ge=1, description="Beams of the search; 1 is greedy.")
    max_length: int = Field(
        128, ge=8, description="Longest translation in tokens; longer ones are cut and counted."
    )
    batch_size: int = Field(64, ge=1, description="Sentences per forward pass.")
    bf16: bool = Field(False, description="Translate in bfloat16.")
