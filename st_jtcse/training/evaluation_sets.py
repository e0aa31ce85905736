"""The sets of a recipe's `evaluate` blocks: their columns say what they measure."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from st_jtcse import data
from st_jtcse.errors import UserError
from st_jtcse.evaluation.own_sets import OwnSet, OwnSetEvaluator, load_own_set
from st_jtcse.recipe.data_blocks import DevSpec, SourceSpec
from st_jtcse.recipe.schema import StageSpec
from st_jtcse.training.model_kinds import EVALUATION_BATCH, kind_of

_HINT = ", or name those of graded pairs with 'columns'"

Sets = dict[str, OwnSet]
# Sets that were read, by what they were read from and the range of their scores.
Known = dict[tuple[data.Source, tuple[float, float]], OwnSet]


def load_sets(stage: StageSpec, known: Known) -> Sets:
    """Read a stage's evaluation sets, by name; those in `known`, which is completed, are not read again.

    Raises UserError where one is faulty, or of another kind than a cross-encoder can be measured on.
    """
    found = {}
    if stage.evaluate is not None:
        for name, spec in stage.evaluate.sets.items():
            if isinstance(spec, DevSpec) and spec.unlabelled:
                continue
            source, score_range = source_of(spec), stage.evaluate.score_range
            key = source, score_range
            if key not in known:
                known[key] = load_own_set(source, source.label, score_range, _HINT)
            found[name] = known[key]
            if stage.model.cross_encoder is not None and found[name].pairs is None:
                raise UserError(
                    f"Stage {stage.name!r}: a cross-encoder is measured on graded pairs (sentence1, sentence2, score), "
                    f"and {source.label} has none; give the stage an 'evaluate' of its own."
                )
    return found


def evaluator_of(stage: StageSpec, name: str, own: OwnSet) -> Any:
    """Return the evaluator of a set; graded pairs have Sentence-Transformers' own."""
    if own.pairs is not None:
        return kind_of(stage.model).evaluator(name, own.pairs)
    return OwnSetEvaluator(own, name, EVALUATION_BATCH)


def source_of(spec: SourceSpec) -> data.Source:
    """Return what is read by a source of a recipe."""
    given = {key: getattr(spec, key) for key in SourceSpec.model_fields}
    file, columns = given.pop("file"), given.pop("columns")
    return data.Source(file=Path(file) if file else None, columns=tuple(columns) if columns else None, **given)
