"""What one task gave."""

from __future__ import annotations

from dataclasses import dataclass

# Metrics by split and subset, from 0 to 1.
Scores = dict[str, dict[str, dict[str, float]]]


@dataclass(frozen=True)
class Record:
    """What one task gave.

    Args:
        source: Where the data came from; of local data the name alone, for results are shown to others.
        sha256: Hash of local data; None for data on the Hub, whose revision `source` names.
        main_score: Metric shown where a table names none.
        scores: Metrics by split and subset.
        seconds: How long it took.
    """

    source: str
    sha256: str | None
    main_score: str
    scores: Scores
    seconds: float

    @property
    def data(self) -> str:
        """Which data they were: the hash of local ones, the revision of the Hub's."""
        return self.sha256 or self.source
