"""Hugging Face models of the towers; this layer needs torch and transformers only."""

from __future__ import annotations

from st_jtcse.towers.modeling_ensemble_encoder import EnsembleEncoderConfig, EnsembleEncoderModel
from st_jtcse.towers.modeling_twin_encoder import TwinEncoderConfig, TwinEncoderModel, TwinEncoderOutput

__all__ = [
    "EnsembleEncoderConfig",
    "EnsembleEncoderModel",
    "TwinEncoderConfig",
    "TwinEncoderModel",
    "TwinEncoderOutput",
]
