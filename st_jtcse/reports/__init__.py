"""Reports: several runs or models as tables and pictures, and self-contained pages that open from disk."""

from __future__ import annotations

from st_jtcse.reports.page import Picture, Section, Table, render_page

__all__ = ["Picture", "Section", "Table", "render_page"]
