"""Hugging Face models of the towers, registered with transformers; this layer needs torch and
transformers only.
"""

from __future__ import annotations

from transformers import AutoConfig, AutoModel

from st_jtcse.towers.modeling_ensemble_encoder import EnsembleEncoderConfig, EnsembleEncoderModel
from st_jtcse.towers.modeling_twin_encoder import (
    TwinEncoderConfig,
    TwinEncoderModel,
    TwinEncoderOutput,
)

for _config, _model in (
    (TwinEncoderConfig, TwinEncoderModel),
    (EnsembleEncoderConfig, EnsembleEncoderModel),
):
    AutoConfig.register(_config.model_type, _config, exist_ok=True)
    AutoModel.register(_config, _model, exist_ok=True)

__all__ = [
    "EnsembleEncoderConfig",
    "EnsembleEncoderModel",
    "TwinEncoderConfig",
    "TwinEncoderModel",
    "TwinEncoderOutput",
]
