"""Sentence-Transformers modules of the twin encoder."""

from __future__ import annotations

from st_jtcse.modules.inference import save_for_inference, to_inference
from st_jtcse.modules.pooler_head import PoolerModulusHead
from st_jtcse.modules.twin_encoder import TwinCrossAttentionEncoder

__all__ = ["PoolerModulusHead", "TwinCrossAttentionEncoder", "save_for_inference", "to_inference"]
