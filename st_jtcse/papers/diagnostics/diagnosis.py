"""All diagnostics of one model on graded pairs."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray
from sentence_transformers import SentenceTransformer

from st_jtcse.correlation import spearman
from st_jtcse.data import Pairs
from st_jtcse.errors import UserError
from st_jtcse.hashing import weights_sha256
from st_jtcse.papers import diagnostics
from st_jtcse.papers.diagnostics.embedding_space import (
    FIFTHS,
    CosineDensity,
    MapMethod,
    SentenceMap,
)
from st_jtcse.papers.diagnostics.encoders import GROUPS, AttentionSink, CLSEnergy, Encoder, Modulus

Found = TypeVar("Found")


@dataclass(frozen=True)
class Plan:
    """What is asked, the same for every model."""

    pairs: Pairs  # graded pairs, whose different sentences are the corpus
    score_range: tuple[float, float]  # lowest and highest gold score possible
    sentence: str  # the sentence whose attention is shown
    map_method: MapMethod = "pca"  # how the map is made
    sample_size: int = (
        250  # pairs that are drawn for the map and for what is looked at inside the encoders
    )
    seed: int = 42  # seed of that draw and of t-SNE
    cases: int = 0  # pairs to show that the models rank most differently
    without: tuple[
        str, ...
    ] = ()  # names of LayerNorms, as patterns, without which the moduli are found too

    @property
    def threshold(self) -> float:
        """The score above which a pair counts as positive."""
        low, high = self.score_range
        return high - (high - low) / FIFTHS

    @property
    def positive(self) -> NDArray[np.bool_]:
        """Which pairs count as positive: those in the highest fifth of the range."""
        return diagnostics.score_fifths(self.pairs.scores, self.score_range) == FIFTHS - 1

    @property
    def sampled(self) -> NDArray[np.int64]:
        """The pairs drawn, in their order."""
        count = len(self.pairs.scores)
        if self.sample_size >= count:
            return np.arange(count)
        return np.sort(
            np.random.default_rng(self.seed).choice(count, self.sample_size, replace=False)
        )

    def sample(self) -> tuple[list[str], NDArray[np.int64]]:
        """Return the different sentences of the drawn pairs, and which of them make a positive
        pair, (M, 2).
        """
        drawn = self.sampled
        first = [self.pairs.sentences1[index] for index in drawn]
        second = [self.pairs.sentences2[index] for index in drawn]
        sentences = list(dict.fromkeys([*first, *second]))
        row = {sentence: index for index, sentence in enumerate(sentences)}
        rows = [(row[a], row[b]) for a, b in zip(first, second)]
        return sentences, np.array(rows, np.int64).reshape(-1, 2)[self.positive[drawn]]


@dataclass
class Diagnosis:
    """What was found about one model."""

    name: str  # its name in tables and pictures
    weights_sha256: str  # hash of its weights
    dimension: int  # H of its embeddings
    parameters: int  # number of its weights
    gmac: float  # 10^9 multiply-accumulate operations of a sentence of 64 tokens
    linear_gmac: float  # those of products with weights alone, as the paper counts
    sentences_per_second: float  # speed of encoding in this run
    spearman: float  # Spearman x 100 of cosines and gold scores
    # Eq. 16 over the positive pairs; None if there are none.
    alignment: float | None
    uniformity: float  # Eq. 17 over the different sentences
    density: CosineDensity  # cosines by fifth of the gold scores
    cosines: NDArray[np.float64]  # cosine of each pair, (P,)
    sentence_map: SentenceMap | None = (
        None  # the sample in two dimensions; None where it cannot be drawn
    )
    # E_CLS by encoder label; empty for a model without BERT-like encoders
    energy: dict[str, CLSEnergy] = field(default_factory=dict)
    # Attention by encoder label.
    sink: dict[str, AttentionSink] = field(default_factory=dict)
    # Moduli by encoder label, also of the encoders without LayerNorms
    modulus: dict[str, Modulus] = field(default_factory=dict)
    # What could not be found, and why.
    notes: list[str] = field(default_factory=list)

    @property
    def mean_energy(self) -> float:
        """E_CLS, the mean over layers and encoders; NaN where there are none."""
        if not self.energy:
            return math.nan
        return float(np.mean([energy.mean.mean() for energy in self.energy.values()]))

    @property
    def eta(self) -> float:
        """Score for 10^9 operations."""
        return diagnostics.eta(self.spearman, self.gmac)

    def as_record(self) -> dict[str, Any]:
        """Return it as JSON has it; what does not exist is null."""
        record = {
            "name": self.name,
            "weights_sha256": self.weights_sha256,
            "dimension": self.dimension,
            "parameters": self.parameters,
            "gmac": round(self.gmac, 4),
            "linear_gmac": round(self.linear_gmac, 4),
            "sentences_per_second": round(self.sentences_per_second, 1),
            "spearman": round(self.spearman, 4),
            "eta": round(self.eta, 4),
            "alignment": self.alignment,
            "uniformity": self.uniformity,
            "mean_cls_energy": self.mean_energy,
            "cosines_by_score_fifth": {
                "edges": self.density.edges,
                "counts": self.density.counts,
                "means": self.density.means,
                "deviations": self.density.deviations,
            },
            "map_points": self.sentence_map and self.sentence_map.points,
            "encoders": [self._encoder_record(label) for label in self.energy],
            "without_layer_norms": {
                label: _norms(found)
                for label, found in self.modulus.items()
                if label not in self.energy
            },
            "notes": self.notes,
        }
        return {key: _plain(value) for key, value in record.items()}

    def _encoder_record(self, label: str) -> dict[str, Any]:
        sink = self.sink[label]
        masses = [dict(zip(GROUPS, layer)) for layer in sink.mass]
        return {
            "label": label,
            "cls_energy": vars(self.energy[label]),
            "attention": {
                "tokens": sink.tokens,
                "groups": sink.groups,
                "mass": masses,
                "maps": sink.maps,
            },
            "modulus": _norms(self.modulus[label]),
        }


def _norms(modulus: Modulus) -> dict[str, Any]:
    return {"hidden": _spread(modulus.hidden), "pooler": _spread(modulus.pooler)}


def _spread(norms: NDArray[np.float64] | None) -> dict[str, float] | None:
    if norms is None:
        return None
    return {"mean": norms.mean(), "deviation": norms.std()}


def diagnose(name: str, model: SentenceTransformer, plan: Plan) -> Diagnosis:
    """Find out everything about a model, which is left as it is; raises UserError for embeddings
    without direction.
    """
    pairs, positive = plan.pairs, plan.positive
    corpus = list(dict.fromkeys([*pairs.sentences1, *pairs.sentences2]))
    units = _units(name, model, corpus)
    row = {sentence: index for index, sentence in enumerate(corpus)}
    first = units[[row[sentence] for sentence in pairs.sentences1]]
    second = units[[row[sentence] for sentence in pairs.sentences2]]
    cosines = (first * second).sum(axis=1)
    notes: list[str] = []
    alignment = None
    if positive.any():
        alignment = diagnostics.alignment(first[positive], second[positive])
    else:
        notes.append(f"No alignment: no pair scores above {plan.threshold:g}.")
    sentences, _ = plan.sample()
    found = Diagnosis(
        name=name,
        weights_sha256=weights_sha256(model),
        dimension=int(first.shape[1]),
        parameters=diagnostics.parameters(model),
        gmac=diagnostics.gmac(model),
        linear_gmac=diagnostics.gmac(model, linear_only=True),
        sentences_per_second=diagnostics.encode_speed(model, sentences),
        spearman=100 * spearman(cosines, pairs.scores),
        alignment=alignment,
        uniformity=diagnostics.uniformity(units),
        density=diagnostics.cosine_density(cosines, pairs.scores, plan.score_range),
        cosines=cosines,
        notes=notes,
    )
    sample = units[[row[sentence] for sentence in sentences]]
    find_map = partial(diagnostics.sentence_map, sample, plan.map_method, plan.seed)
    find_encoders = partial(diagnostics.encoders_of, model)
    found.sentence_map = _or_note(notes, "No map", find_map)
    for encoder in _or_note(notes, "No E_CLS, attention and moduli", find_encoders) or ():
        _look_inside(found, encoder, plan, sentences)
    return found


def _units(name: str, model: SentenceTransformer, corpus: list[str]) -> NDArray[np.float64]:
    try:
        return diagnostics.unit_vectors(model.encode(corpus, show_progress_bar=False))
    except UserError as error:
        raise UserError(f"{name}: {error}") from None


def _look_inside(found: Diagnosis, encoder: Encoder, plan: Plan, sentences: list[str]) -> None:
    """Add what is found of one of the model's encoders."""
    found.energy[encoder.label] = diagnostics.cls_energy_by_layer(encoder, sentences)
    found.sink[encoder.label] = diagnostics.attention_sink(encoder, plan.sentence)
    found.modulus[encoder.label] = own = diagnostics.modulus(encoder, sentences)
    if own.note is not None:
        found.notes.append(f"{encoder.label or 'Moduli'}: {own.note}")
    for bare in [diagnostics.without_layer_norms(encoder, pattern) for pattern in plan.without]:
        find = partial(diagnostics.modulus, bare, sentences)
        moduli = _or_note(found.notes, f"{bare.label}, no moduli", find)
        if moduli is not None:
            found.modulus[bare.label] = moduli


def _or_note(notes: list[str], without: str, find: Callable[[], Found]) -> Found | None:
    try:
        return find()
    except UserError as error:
        notes.append(f"{without}: {error}")
        return None


def _plain(value: Any) -> Any:
    """Round to six places, and turn NaN, which JSON lacks, into null."""
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, (list, np.ndarray)):
        return [_plain(item) for item in value]
    if isinstance(value, (float, np.floating)):
        if math.isfinite(value):
            return round(float(value), 6)
        return None
    if isinstance(value, np.integer):
        return int(value)
    return value
