"""What an embedding space and the encoders behind it look like, in numbers and in pictures."""

from __future__ import annotations

from st_jtcse.diagnostics.alignment_uniformity import alignment, uniformity, unit_vectors
from st_jtcse.diagnostics.attention_sink import AttentionSink, attention_mass, attention_sink
from st_jtcse.diagnostics.cls_energy import cls_energy, cls_energy_by_layer
from st_jtcse.diagnostics.cosine_density import CosineDensity, cosine_density, score_fifths
from st_jtcse.diagnostics.cost import encode_speed, eta, gmac, parameters
from st_jtcse.diagnostics.encoders import Encoder, encoders_of
from st_jtcse.diagnostics.modulus import Modulus, modulus
from st_jtcse.diagnostics.sentence_map import MapMethod, SentenceMap, sentence_map

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
]
