"""What runs and evaluations leave as JSON: the shape of each record, and the one way to read it.

A key that a later version adds is kept, and one that 0.1.0 did not write yet has a default; a value
of another type, or out of its range, is refused.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, TypeVar

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    StringConstraints,
    ValidationError,
    WrapValidator,
)

from st_jtcse.errors import UserError
from st_jtcse.wording import NAME_PATTERN, dotted, expected_and_found

# Far above whatever is counted, and still a float that can be drawn.
_MANY = 2**53
Count = Annotated[int, Field(ge=0, le=_MANY)]
Seconds = Annotated[float, Field(ge=0, le=_MANY)]
# A correlation, an accuracy and the like, x 100.
Score = Annotated[float, Field(ge=-100, le=100, allow_inf_nan=False)]
# Any metric of MTEB's hundreds of tasks.
Metric = Annotated[float, Field(ge=-_MANY, le=_MANY, allow_inf_nan=False)]


def _as_written(value: Any, check: Callable[[Any], float]) -> Any:
    check(value)
    return value


# A whole number stays one. A trainer may log NaN, as of a gradient.
Number = Annotated[float, WrapValidator(_as_written)]


def _placed(entry: dict[str, float]) -> dict[str, float]:
    for key in ("step", "train_seconds"):
        if not 0 <= entry.get(key, -1) <= _MANY:
            raise ValueError(f"expected {key!r} of at least 0, found {entry.get(key, 'none')}")
    return entry


def _not_empty(hashes: dict[str, str]) -> dict[str, str]:
    if not hashes:
        raise ValueError("expected the hash of each file of weights, found none")
    return hashes


# What a trainer logged at a step: the loss and its terms, or an evaluation.
LogEntry = Annotated[dict[str, Number], AfterValidator(_placed)]


class Stored(BaseModel):
    """Base of all that is stored."""

    called: ClassVar[str]

    model_config = ConfigDict(extra="allow", strict=True)

    def plain(self) -> dict[str, Any]:
        """Return what is written: what was read or found, without defaults."""
        return self.model_dump(exclude_unset=True)


class VerdictRecord(Stored):
    """A verdict beside another model on one set; figures are x 100."""

    set: str
    verdict: Literal["better", "equal", "worse"]
    sentence: str
    base: Score
    score: Score
    low: float
    high: float


class Examples(Stored):
    """Rows of a set of graded pairs, and their cosines by the model as shipped and as trained."""

    set: str = ""
    rows: list[Count] = []
    before: list[Metric] = []
    after: list[Metric] = []


class StageRecord(Stored):
    """What a finished stage's training_results.json says of it; scores are x 100, by set."""

    called: ClassVar[str] = "a stage's record"

    name: str
    title: str | None = None
    reported_as: str | None = None
    environment: dict[str, Any]
    seed: int
    loss: dict[str, Any] | None
    data_sha256: dict[str, str]
    begins_as: str = ""
    as_shipped: dict[str, dict[str, Score]] = {}
    metrics: dict[str, str] = {}
    spearman_start: dict[str, Score]
    steps: Count
    seconds: Seconds
    sentences: Count | None = None
    unlabelled_rows_skipped: Count = 0
    blank_lines_skipped: Count = 0
    kept_whole: Count = 0
    round_trip: dict[str, dict[str, Count]] = {}
    neighbours_weight: float | None = None
    best_step: Count | None = None
    best_dev: Score | None = None
    log: list[LogEntry] = []
    trained_share: float | None = None
    kept_neighbours: float | None = None
    parameters: Count
    gmac: Metric
    spearman: dict[str, Score]
    verdicts: list[VerdictRecord] = []
    examples: Examples = Examples()
    weights_sha256: Annotated[dict[str, str], AfterValidator(_not_empty)]
    settings_sha256: dict[str, str] = {}


class RunResults(Stored):
    """What a run's results.json says of its finished stages and the models they start from."""

    called: ClassVar[str] = "the results of st-train"

    recipe: str
    seed: int
    finished: bool
    written: str
    environment: dict[str, Any]
    as_shipped: dict[str, dict[str, Score]] = {}
    data_sha256: dict[str, str] = {}
    stages: list[StageRecord]
    verdicts: list[VerdictRecord] = []


class TaskRecord(Stored):
    """What one task of an evaluation gave."""

    model_config = ConfigDict(frozen=True)

    # Where the data came from; of local data the name alone, for results are shown to others.
    source: str
    # Hash of local data; None for data on the Hub, whose revision `source` has.
    sha256: str | None
    main_score: str  # Metric shown where a table names none
    # Metrics from 0 to 1 by split and subset; what is not finite is left out.
    scores: dict[str, dict[str, dict[str, Metric]]]
    seconds: Seconds

    @property
    def data(self) -> str:
        """Which data they were: the hash of local ones, the revision of the Hub's."""
        return self.sha256 or self.source

    @property
    def is_defined(self) -> bool:
        """Whether the main score is there in every part."""
        parts = [metrics for subsets in self.scores.values() for metrics in subsets.values()]
        return bool(parts) and all(self.main_score in metrics for metrics in parts)


class EvaluatedModel(Stored):
    """The model that an evaluation is of."""

    name: str
    sha256: str
    files: dict[str, str]
    parameters: Count
    dimension: Count | None
    max_seq_length: Number | None  # Static embeddings have no end


class SuiteRow(Stored):
    """A row of a suite's table; scores are in percent."""

    label: str
    task: str
    metric: str | None
    score: Metric | None
    reported: dict[str, Score]
    note: str | None


class Aggregations(Stored):
    """SentEval's three aggregations of an STS set, and its subsets' correlations, in percent."""

    all: Metric | None
    mean: Metric | None
    wmean: Metric | None
    subsets: dict[str, Metric]


class TransferScores(Stored):
    """The three figures of a transfer set, in percent; F1 is of some sets only."""

    accuracy: Metric | None
    dev_accuracy: Metric | None
    f1: Metric | None


class SuiteScores(Stored):
    """A suite's table and its paper's means; scores are in percent, None where there is none."""

    source: str | None
    note: str | None
    rows: list[SuiteRow]
    average: Metric | None
    reported_average: dict[str, Score]
    by_metric: dict[str, Metric | None] = {}
    aggregations: dict[str, Aggregations] = {}
    transfer: dict[str, TransferScores] = {}
    # Of a search over a corpus, by label and metric.
    search: dict[str, dict[str, Metric]] = {}


class Beside(Stored):
    """The first of several models, and what another one comes to beside it."""

    model: str
    verdicts: list[VerdictRecord]


# Pictures are called by it.
_SuiteName = Annotated[str, StringConstraints(pattern=NAME_PATTERN)]


class EvaluationResults(Stored):
    """What an evaluation's results.json says of one model."""

    called: ClassVar[str] = "the results of st-eval"

    model: EvaluatedModel
    versions: dict[str, str]
    suites: dict[_SuiteName, SuiteScores]
    tasks: dict[str, TaskRecord]
    missing: dict[str, str]
    beside: Beside | None = None


_Kind = TypeVar("_Kind", bound=Stored)


def read(kind: type[_Kind], path: Path, way_out: str) -> _Kind:
    """Read a record; raises UserError that says what does not fit, where, and the way out."""
    try:
        return kind.model_validate_json(path.read_bytes())
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        told = ": ".join(filter(None, [dotted(first["loc"]), expected_and_found(first)]))
        raise UserError(f"{path} is damaged, or not {kind.called} ({told}); {way_out}.") from None
