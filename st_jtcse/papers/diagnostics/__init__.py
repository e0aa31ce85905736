"""What an embedding space and the encoders behind it look like, in numbers and in pictures."""

from __future__ import annotations

from st_jtcse.correlation import unit_vectors
from st_jtcse.evaluation import gmac
from st_jtcse.papers.diagnostics.cost import encode_speed, eta, parameters
from st_jtcse.papers.diagnostics.embedding_space import (
    CosineDensity,
    MapMethod,
    SentenceMap,
    alignment,
    cosine_density,
    score_fifths,
    sentence_map,
    uniformity,
)
from st_jtcse.papers.diagnostics.encoders import (
    AttentionSink,
    Encoder,
    Modulus,
    attention_mass,
    attention_sink,
    cls_energy,
    cls_energy_by_layer,
    encoders_of,
    modulus,
    without_layer_norms,
)

__all__ = [
    "AttentionSink",
    "CosineDensity",
    "Encoder",
    "MapMethod",
    "Modulus",
    "SentenceMap",
    "alignment",
    "attention_mass",
    "attention_sink",
    "cls_energy",
    "cls_energy_by_layer",
    "cosine_density",
    "encode_speed",
    "encoders_of",
    "eta",
    "gmac",
    "modulus",
    "parameters",
    "score_fifths",
    "sentence_map",
    "uniformity",
    "unit_vectors",
    "without_layer_norms",
]
