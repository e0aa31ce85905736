"""Sentence-Transformers modules of the twin encoder and of ensembles."""

from __future__ import annotations

from st_jtcse.modules.attention_pooling import AttentionPooling
from st_jtcse.modules.closed_forms import AffineMap, Moments, append_maps
from st_jtcse.modules.ensemble_encoder import EnsembleEncoder
from st_jtcse.modules.inference import save_for_inference, to_inference
from st_jtcse.modules.loading import load_sentence_transformer
from st_jtcse.modules.multi_tokenizer_ensemble import MultiTokenizerEnsemble, ensemble_of
from st_jtcse.modules.pooler_head import PoolerModulusHead
from st_jtcse.modules.training_head import TrainingHead
from st_jtcse.modules.twin_encoder import TwinCrossAttentionEncoder
from st_jtcse.modules.whitening import whitening_of

__all__ = [
    "AffineMap",
    "AttentionPooling",
    "EnsembleEncoder",
    "Moments",
    "MultiTokenizerEnsemble",
    "PoolerModulusHead",
    "TrainingHead",
    "TwinCrossAttentionEncoder",
    "append_maps",
    "ensemble_of",
    "load_sentence_transformer",
    "save_for_inference",
    "to_inference",
    "whitening_of",
]
