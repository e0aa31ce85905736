"""Reports: numbers as tables, pictures and self-contained pages that open from disk."""
