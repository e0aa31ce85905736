"""Losses for Sentence-Transformers' trainers; the names here are also the names recipes know."""

from __future__ import annotations

from st_jtcse.losses.cross_encoder_cosent import CrossEncoderCoSENTLoss
from st_jtcse.losses.jtcse import JTCSELoss
from st_jtcse.losses.lsrns import LSRNSLoss
from st_jtcse.losses.rankcse import RankCSELoss
from st_jtcse.losses.simcse import SimCSELoss

__all__ = ["CrossEncoderCoSENTLoss", "JTCSELoss", "LSRNSLoss", "RankCSELoss", "SimCSELoss"]
