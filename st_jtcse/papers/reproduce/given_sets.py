"""Scores of finished stages on SentEval's sets, as far as a folder of the user's has them."""

from __future__ import annotations

import statistics
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from st_jtcse.errors import DataUnavailable, UserError
from st_jtcse.evaluation.given_models import load_model
from st_jtcse.evaluation.results import Outcome, Results
from st_jtcse.papers.evaluation.senteval_data import STS, TRANSFER, SentEvalJob
from st_jtcse.papers.reproduce.items import Sets


class GivenSets:
    """The sets of a folder; it is one that ``st-eval --data`` takes.

    Args:
        folder: The folder.

    Raises:
        UserError: The folder has none of SentEval's sets, or a faulty one.
    """

    def __init__(self, folder: Path) -> None:
        pairs, labelled = _found(STS, folder), _found(TRANSFER, folder)
        self.jobs: dict[Sets, dict[str, SentEvalJob]] = {
            "sts": pairs,
            "unseen": pairs,
            "transfer": labelled,
            "own": {},
        }
        if not pairs and not labelled:
            raise UserError(
                f"--data: expected a folder with sets of SentEval, such as sts/stsb.test.jsonl, "
                f"found none in {folder}. docs/evaluation.md has their form."
            )

    def score(self, kind: Sets, model: Path, pooling: str | None, kept: Path) -> float:
        """Return the mean of a model's main scores, x 100; a model that `kept` has results of is
        not evaluated again.
        """
        how = {} if pooling is None else {"pooling": pooling}
        evaluated = load_model(str(model), **how)
        results = Results(evaluated, kept / evaluated.sha256)
        outcomes: dict[str, Outcome | None] = {}
        results.run([], self.jobs[kind], 64, outcomes.__setitem__)
        found = []
        for name, outcome in outcomes.items():
            if outcome is None or isinstance(outcome, str):
                raise UserError(f"{name}, {model}: {outcome}")
            found.append(100 * outcome.scores["test"]["default"][outcome.main_score])
        return statistics.fmean(found)

    def told(self, kind: Sets) -> str:
        """Return the names of the sets."""
        return ", ".join(self.jobs[kind])


def _found(names: Iterable[str], folder: Path) -> dict[str, SentEvalJob]:
    found = {}
    for name in names:
        with suppress(DataUnavailable):
            found[name] = SentEvalJob(name, folder, hub=False)
    return found
