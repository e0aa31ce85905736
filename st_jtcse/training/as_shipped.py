"""The models that a run starts from, as their makers shipped them: what stages, and a whole run,
make of them.
"""

from __future__ import annotations

import logging
import os.path
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from sentence_transformers import SentenceTransformer

from st_jtcse import embedded, processes
from st_jtcse.correlation import unit_vectors
from st_jtcse.errors import UserError, ways_out
from st_jtcse.evaluation.measured_sets import OwnSet, Statistic
from st_jtcse.evaluation.shared_encoding import shared
from st_jtcse.evaluation.verdict import compare
from st_jtcse.modules.loading import saved_as
from st_jtcse.modules.model_folders import PLAIN
from st_jtcse.modules.saved_form import SavedForm, saved_form, shared_form
from st_jtcse.pooling_names import SPOKEN
from st_jtcse.recipe.blocks import WeightedModelSpec
from st_jtcse.recipe.schema import STAGE_PREFIX, ModelSpec, StageSpec
from st_jtcse.records import RunResults, read
from st_jtcse.training.limits import is_kept
from st_jtcse.training.model_kinds import kind_of
from st_jtcse.training.models import KEYS, load_frozen
from st_jtcse.training.stage_inputs import Inputs

logger = logging.getLogger(__name__)

_EXAMPLES = 8


def start_models(stage: StageSpec, stages: Mapping[str, StageSpec]) -> list[WeightedModelSpec]:
    """Return the models, none of them a stage's, that a stage's weights come from, through the
    stages before it.
    """
    found: dict[tuple[str, str | None], WeightedModelSpec] = {}
    for place, name in stage.model.models.items():
        holder: Any = stage.model.members[int(place[1])] if stage.model.members else stage.model
        how = {"revision": holder.revision, "trust_remote_code": holder.trust_remote_code}
        own = [WeightedModelSpec.model_validate({"model": name, **how})]
        if name.startswith(STAGE_PREFIX):
            own = start_models(stages[name.removeprefix(STAGE_PREFIX)], stages)
        found |= {(spec.model, spec.revision): spec for spec in own}
    return list(found.values())


def hub_ids(stage: StageSpec, stages: Mapping[str, StageSpec]) -> list[str]:
    """Return the Hub ids of a stage's start models, as far as they have one."""
    names = (
        start.model for start in start_models(stage, stages) if not os.path.exists(start.model)
    )
    return list(dict.fromkeys(embedded.HUB_ID if name == embedded.NAME else name for name in names))


def begins_as(spec: ModelSpec) -> str:
    """Say in a phrase what a stage begins with, as the plan, the log and the model's card do.

    Raises UserError where a model cannot be read, or towers do not embed alike.
    """
    if spec.members is not None:
        return f"sum of {' and '.join(map(_short, spec.models.values()))}"
    if spec.scores_pairs:
        return f"{_short(*spec.models.values())}, a cross-encoder's backbone"
    names = list(dict.fromkeys(spec.models.values()))
    if (
        spec.towers
        and spec.pooling is None
        and not any(name.startswith(STAGE_PREFIX) for name in names)
    ):
        with ways_out(KEYS):
            shared_form(names, revision=spec.revision)
    source = " and ".join(map(_short, names)) + (
        ", twice" if spec.towers and len(names) == 1 else ""
    )
    ways = dict.fromkeys(_way(name, spec) for name in names)
    changes = {
        f"tower {spec.tower}": spec.tower,
        f"layers {spec.layers}": spec.layers,
        "random weights": spec.fresh,
        f"cut at {spec.max_seq_length} tokens": spec.max_seq_length,
    }
    return ", ".join(
        [
            f"{source}: {' and '.join(ways)}",
            *(told for told, made in changes.items() if made is not None),
        ]
    )


def _way(name: str, spec: ModelSpec) -> str:
    """Say how a model's tokens make an embedding, and whether its makers had it so."""
    own = None if spec.pooling is None else f"{SPOKEN[spec.pooling]} (pooling: {spec.pooling})"
    own = own if spec.template is None else f"mask token in {spec.template!r} (template)"
    if name.startswith(STAGE_PREFIX):
        return own or "as that stage leaves it"
    form = saved_form(name, revision=spec.revision)
    if form is None:
        kind = saved_as(name, spec.revision)
        return f"{own or 'no pooling'}, a {kind if kind == PLAIN else f'{kind} by its encoder'}"
    if own is None:
        # Static embeddings are all there is.
        return ", ".join(filter(None, (str(form), "as shipped")))
    return f"{own}, {'as' if form == SavedForm(pooling=spec.pooling) else 'not as'} shipped"


def _short(name: str) -> str:
    """Return a model's name, of a local folder the last part."""
    if os.path.isabs(name):
        return os.path.basename(name)
    return name


@dataclass
class ShippedScores:
    """Spearman x 100 of start models as shipped, each computed once a run."""

    stages: Mapping[str, StageSpec]
    # By model and evaluation set.
    scores: dict[str, dict[str, float]] = field(default_factory=dict)
    data_sha256: dict[str, str] = field(default_factory=dict)  # Of the sets
    # Called by a stage once it is known to begin.
    keep: Callable[[], None] = lambda: None

    def take(
        self, scores: Mapping[str, Mapping[str, float]], data_sha256: Mapping[str, str]
    ) -> None:
        """Take up what is known already: scores by model and set, and the hashes of the sets."""
        for name, found in scores.items():
            own = self.scores.setdefault(name, {})
            for key, score in found.items():
                digest = data_sha256.get(key)
                if digest and self.data_sha256.setdefault(key, digest) == digest:
                    own.setdefault(key, score)

    def take_up(self, path: Path) -> None:
        """Take up the results that an earlier start of the run left, if there are any."""
        if not path.is_file():
            return
        try:
            found = read(RunResults, path, "it is written anew")
        except UserError as error:  # What it holds can be computed again.
            logger.warning("%s", error)
            return
        self.take(found.as_shipped, found.data_sha256)

    def of(self, stage: StageSpec, inputs: Inputs) -> dict[str, dict[str, float]]:
        """Return the scores of a stage's start models on its evaluation sets; a plain encoder has
        none, nor has any on sets that are beside a stage's own start.
        """
        told: dict[str, dict[str, float]] = {}
        evaluators = {name: own for name, own in inputs.evaluators.items() if not is_kept(own)}
        # A cross-encoder scores pairs; its backbone, as shipped, embeds sentences.
        if not evaluators or stage.model.scores_pairs or processes.rank() != 0:
            return told
        names = _labels(self.stages)
        for start in start_models(stage, self.stages):
            name = names[start.model, start.revision]
            usable = [key for key in evaluators if self.data_sha256.get(key) == inputs.hashes[key]]
            known = {
                key: score for key, score in self.scores.get(name, {}).items() if key in usable
            }
            missing = {key: found for key, found in evaluators.items() if key not in known}
            try:
                if missing and saved_form(start.model, revision=start.revision) is not None:
                    known |= kind_of(stage.model).scores(
                        load_frozen(start, embedded.place), missing
                    )
            except UserError as error:
                logger.warning("the table lacks the row 'as shipped': %s", error)
                continue
            told[name] = {key: known[key] for key in evaluators if key in known}
        self.take(told, inputs.hashes)
        return told


def _labels(stages: Mapping[str, StageSpec]) -> dict[tuple[str, str | None], str]:
    """Name a run's start models, folders by as much of their paths as tells them apart."""
    starts = {
        (spec.model, spec.revision)
        for stage in stages.values()
        for spec in start_models(stage, stages)
    }
    folders = {model: Path(model).parts for model, _ in starts if os.path.isabs(model)}
    labels = {}
    for model, revision in starts:
        parts = folders.get(model, ())
        ends = (parts[-length:] for length in range(1, len(parts) + 1))
        alone = (
            end for end in ends if sum(other[-len(end) :] == end for other in folders.values()) == 1
        )
        name = "/".join(next(alone, (model,)))
        labels[model, revision] = f"{name}@{revision}" if revision else name
    return labels


def beside_start(
    stages: Sequence[StageSpec],
    stage: StageSpec,
    inputs: Inputs,
    model: SentenceTransformer,
    has_score: bool,
) -> dict[str, Any]:
    """Return what a stage's record says of its model beside the start: verdicts, and the cosines of
    a few pairs.

    They are of the test sets; the others have chosen the model and say nothing of it. There are
    none but of the run's last bi-encoder, and where it comes from one model, which `has_score` as
    shipped, as the first process knows. Every process comes here, and shares the encoding; what the
    others return is of no use.
    """
    none: dict[str, Any] = {"verdicts": []}
    tests = {name: inputs.sets[name] for name in (stage.evaluate.test if stage.evaluate else ())}
    bi_encoders = [other.name for other in stages if not other.model.scores_pairs]
    starts = start_models(stage, {other.name: other for other in stages})
    if not tests or len(starts) != 1 or stage.name != bi_encoders[-1]:
        return none
    base = _loaded(starts[0]) if processes.gathered(has_score)[0] else None
    is_lacking = processes.in_any(base is None)  # Asked in every process.
    if is_lacking or base is None:
        return none
    before, after = (shared(each, partial(_statistics, each, tests)) for each in (base, model))
    if not before or not after:
        return none
    measured = {name: (own, before[name], after[name]) for name, own in tests.items()}
    told = [verdict.as_record().plain() for verdict in compare(measured)]
    return {"verdicts": told, "examples": _examples(base, model, tests)}


def _loaded(start: WeightedModelSpec) -> Any:
    """Return a start model, None where it does not load."""
    try:
        return load_frozen(start, embedded.place)
    except UserError as error:
        logger.warning("no verdict: %s", error)
        return None


def _statistics(model: Any, sets: Mapping[str, OwnSet]) -> dict[str, Statistic]:
    """Return a model's statistics on sets, nothing where one is not defined."""
    try:
        return {name: own.statistic(model) for name, own in sets.items()}
    except UserError as error:
        logger.warning("no verdict: %s", error)
        return {}


def _examples(
    base: SentenceTransformer, model: SentenceTransformer, sets: Mapping[str, Any]
) -> dict[str, Any]:
    """Return rows of the first set of graded pairs, evenly by gold score, and their cosines by both
    models.

    The texts are left out: records are pushed with models.
    """
    name, pairs = next(
        ((name, own.pairs) for name, own in sets.items() if own.pairs is not None), ("", None)
    )
    if pairs is None:
        return {}
    order = np.argsort(pairs.scores, kind="stable")
    chosen = order[np.linspace(0, len(order) - 1, min(_EXAMPLES, len(order))).round().astype(int)]
    sides = [pairs.sentences1[row] for row in chosen], [pairs.sentences2[row] for row in chosen]
    found: dict[str, Any] = {"set": name, "rows": chosen.tolist()}
    for when, one in (("before", base), ("after", model)):
        first, second = [unit_vectors(one.encode(side, show_progress_bar=False)) for side in sides]
        found[when] = (first * second).sum(axis=1).astype(float).round(4).tolist()
    return found
