"""Losses for SentenceTransformerTrainer; the names here are also the names recipes know."""

from __future__ import annotations

from st_jtcse.losses.jtcse import JTCSELoss
from st_jtcse.losses.simcse import SimCSELoss

__all__ = ["JTCSELoss", "SimCSELoss"]
