"""Losses of papers beside JTCSE's, TNCSE's and theirs that build on them."""

from __future__ import annotations

from st_jtcse.papers.losses.arccse import ArcCSELoss
from st_jtcse.papers.losses.diffcse import DiffCSELoss
from st_jtcse.papers.losses.esimcse import ESimCSELoss
from st_jtcse.papers.losses.infocse import InfoCSELoss
from st_jtcse.papers.losses.iscse import ISCSELoss
from st_jtcse.papers.losses.sncse import SNCSELoss
from st_jtcse.papers.losses.whitenedcse import WhitenedCSELoss

__all__ = [
    "ArcCSELoss",
    "DiffCSELoss",
    "ESimCSELoss",
    "ISCSELoss",
    "InfoCSELoss",
    "SNCSELoss",
    "WhitenedCSELoss",
]
