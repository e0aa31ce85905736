"""The blocks of a recipe about its data: what is trained on, and what is evaluated on."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, ValidationInfo, field_validator, model_validator

from st_jtcse.recipe.ability import abilities, with_abilities
from st_jtcse.recipe.blocks import DEV, Block, Source, Sources, SourceSpec, Text, shorthand
from st_jtcse.recipe.extends import FOREIGN
from st_jtcse.wording import shown

# All by which a stage's record calls data that are not test sets.
_OF_ABILITIES = sorted(name for ability in abilities() for name in ability.data_names)
_TAKEN = tuple(dict.fromkeys((DEV, "train", *_OF_ABILITIES)))


class SetSpec(SourceSpec):
    """A set to measure on: a source of rows, or a corpus with queries."""

    kinds = SourceSpec.kinds | {"dataset": ("corpus", "queries")}

    corpus: Text | None = Field(
        None,
        description="Documents that are searched, a file of them or a folder; `file` then has the "
        "queries and what is relevant to each (columns query, relevant), or beside `queries` the "
        "judgements ([query-id, corpus-id, score]).",
    )
    queries: Text | None = Field(
        None, description="Queries with ids (_id, text), where `file` names them by id."
    )

    def _foreign(self) -> tuple[str, ...]:
        return self.kinds["dataset" if self.file is None else "file"]

    def _check_origin(self) -> None:
        super()._check_origin()
        if self.queries is not None and self.corpus is None:
            raise ValueError("expected 'corpus' beside 'queries', found none. Give the documents.")


@with_abilities("dev")
class DevSpec(SetSpec):
    """What chooses the checkpoint: a set, or what an ability makes of the training data."""

    @classmethod
    def can_make(cls) -> set[str]:
        """Return the keys of the abilities that make such a set."""
        return cls.model_fields.keys() - SetSpec.model_fields.keys()

    @property
    def made(self) -> str | None:
        """The key of the ability that makes the set; None where a source is given."""
        return next((key for key in sorted(self.can_make()) if getattr(self, key)), None)

    @property
    def origin(self) -> str | None:
        """Where an ability takes the set from, in words; None where a source is given."""
        if self.made is None:
            return None
        return type(self).model_fields[self.made].title

    def _foreign(self) -> tuple[str, ...]:
        if self.made is None:
            return super()._foreign()
        return tuple(SetSpec.model_fields)

    def _check_origin(self) -> None:
        if self.made is None:
            super()._check_origin()
        elif key := self._given(self._foreign()):
            raise ValueError(
                f"expected no '{key}' beside '{self.made}', found one. Remove one of them."
            )


MeasuredSet = Annotated[SetSpec, shorthand("file")]


def _dev_shorthand(value: Any) -> Any:
    """Let the key of an ability alone stand for the block that says it."""
    if isinstance(value, str) and value in DevSpec.can_make():
        return {value: True}
    return value


def _check_order(low: float, high: float) -> None:
    if not low < high:
        raise ValueError(
            f"expected the lower score first in 'score_range', found [{low:g}, {high:g}]. Swap "
            "them or widen it."
        )


@with_abilities("data")
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
    vectors: Source | None = Field(
        None,
        description="Vectors of any model, one a text, in place of the text: a .npy, .safetensors "
        "or .parquet file. The run then fits the recipe's `maps` on them and nothing else.",
    )
    pairs: Sources | None = Field(
        None,
        description="Sources of labelled rows. Columns: sentence1, sentence2 and score or label; "
        "without labels anchor, positive, negative.",
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
        if key := self._given(self._foreign()):
            wanted, found = ("train", "pairs") if self.train is None else ("pairs", "train")
            raise ValueError(
                f"expected '{wanted}' beside '{key}', found '{found}'. Remove '{key}'."
            )
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
        "correlation of their cosines. 'unlabelled': held-out training sentences.",
    )
    test: dict[str, MeasuredSet] = Field(
        default_factory=dict, description="Sets to report, by the name to show."
    )
    general: dict[str, MeasuredSet] = Field(
        default_factory=dict,
        description="Sets that `retention` and `kept_neighbours` protect, by the name to show; "
        "they are reported too. Beside sets with labels also plain sentences: a text file, or a "
        "table with the column sentence.",
    )
    retention: float | None = Field(
        None,
        ge=0,
        allow_inf_nan=False,
        description="How many points each set of `general` may lose at most; if one loses more, "
        "the trained weights are mixed with those of the start.",
    )
    kept_neighbours: float | None = Field(
        None,
        ge=0,
        le=100,
        allow_inf_nan=False,
        description="The same for plain sentences in `general`: of each one's ten nearest by the "
        "start, how many percent stay its ten nearest at least, on average.",
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

    @field_validator("test", "general", mode="before")
    @classmethod
    def _by_name(cls, sets: Any, info: ValidationInfo) -> Any:
        source = isinstance(sets, dict) and not {"file", "dataset"}.isdisjoint(sets)
        if source or isinstance(sets, (str, list)):
            raise ValueError(
                f"expected each set under a name, found {shown(sets)}. Write it as "
                f"evaluate.{info.field_name}.NAME=FILE, in a recipe "
                f"{info.field_name}: {{NAME: FILE}}."
            )
        return sets

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
    def sets(self) -> dict[str, SourceSpec]:
        """All sets by name."""
        found: dict[str, SourceSpec] = {DEV: self.dev} if self.dev else {}
        return {**found, **self.general, **self.test}

    @model_validator(mode="after")
    def _ordered(self) -> EvaluateSpec:
        _check_order(*self.score_range)
        if self.patience is not None and self.dev is None:
            raise ValueError(
                "expected 'dev' beside 'patience', found none. Give it, or remove 'patience'."
            )
        for key in ("retention", "kept_neighbours"):
            if getattr(self, key) is not None and not self.general:
                raise ValueError(
                    f"expected 'general' beside '{key}', found none. Name sets, or remove '{key}'."
                )
        if both := self.general.keys() & self.test.keys():
            raise ValueError(
                f"expected each name once, found {min(both)!r} in 'general' and 'test'. Rename one."
            )
        return self
