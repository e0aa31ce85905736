"""Logistic regression on frozen embeddings by SentEval's protocol, as a Sentence-Transformers
evaluator.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.evaluation import SentenceEvaluator
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import accuracy_score, f1_score
from sklearn.model_selection import GridSearchCV, PredefinedSplit, StratifiedKFold, cross_validate

from st_jtcse.errors import UserError
from st_jtcse.evaluation.unique_texts import encode_columns

# SentEval's seed, folds and grids of its scikit-learn classifiers.
SEED = 1111
FOLDS = 10
GRID = tuple(2.0**exponent for exponent in range(-2, 4))
GRID_OF_GIVEN_TEST = tuple(2.0**exponent for exponent in range(-1, 6))
# Where SentEval's 100 steps of scikit-learn's time end before the solver does, ours goes on.
MAX_STEPS = 2000


@dataclass(frozen=True)
class LabelledTexts:
    """Texts with a class each."""

    columns: tuple[Sequence[str], ...]  # one column of texts, or two for pairs
    labels: Sequence[int] | Sequence[str]  # class of each row


class SentEvalTransferEvaluator(SentenceEvaluator):
    """Accuracy of a logistic regression on the model's embeddings, its C chosen without the test
    rows.

    A row's features are its text's embedding, or |u - v| and u * v, concatenated, for a pair. Rows
    come in SentEval's order (by length, then label), so folds are those that SentEval draws. By the
    splits given:

    - ``all``: 10-fold cross-validation; in each fold C is chosen by 10 inner folds of the fold's
      training rows.
    - ``train`` and ``test``: C is chosen by 10 folds of train.
    - ``train``, ``dev`` and ``test``: C is chosen on dev; the final fit is on train alone.

    C is one of 2^-2..2^3, with train and test 2^-1..2^5.

    Args:
        splits: The rows by split.
        name: Prefix of the metrics.
        batch_size: Sentences encoded at once.
        report_f1: Whether to report F1 of the class 1 beside the accuracy, as MRPC does; needs a
            test split.

    Returns:
        ``{name}_accuracy`` (the primary metric), ``{name}_dev_accuracy`` of the chosen C, and
        ``{name}_f1``.

    Raises:
        UserError: The splits are none of the three, a class has fewer training rows than there are
            folds, test holds a class that train does not, or F1 is asked for without a test split
            of the classes 0 and 1.

    Example:
        ::

            from sentence_transformers import SentenceTransformer
            from st_jtcse.papers.evaluation import LabelledTexts, SentEvalTransferEvaluator

            rows = LabelledTexts(
                (["a dog", "a cat", "one man", "one child"] * 10,), [0, 0, 1, 1] * 10
            )
            evaluator = SentEvalTransferEvaluator({"train": rows, "test": rows}, name="beings")
            results = evaluator(SentenceTransformer("path/to/encoder_1"))
            print(results[evaluator.primary_metric])

    References:
        Conneau and Kiela, SentEval, LREC 2018, Section 3.
    """

    def __init__(
        self,
        splits: Mapping[str, LabelledTexts],
        name: str = "",
        batch_size: int = 64,
        *,
        report_f1: bool = False,
    ) -> None:
        super().__init__()
        _check(splits, report_f1)
        self.splits = {split: _in_order(rows) for split, rows in splits.items()}
        self.name = name
        self.batch_size = batch_size
        self.report_f1 = report_f1
        self.primary_metric = f"{name}_accuracy" if name else "accuracy"

    def __call__(  # type: ignore[override]  # ST's own evaluators narrow the model's type too
        self,
        model: SentenceTransformer,
        output_path: str | None = None,
        epoch: int = -1,
        steps: int = -1,
    ) -> dict[str, float]:
        """Evaluate the model; the arguments are those of Sentence-Transformers' evaluators."""
        columns = [column for rows in self.splits.values() for column in rows.columns]
        vectors = iter(encode_columns(model, columns, self.batch_size))
        features: dict[str, Any] = {}
        for split, rows in self.splits.items():
            features[split] = first = next(vectors)
            if len(rows.columns) == 2:
                second = next(vectors)
                features[split] = np.hstack([np.abs(first - second), first * second])
        labels = {split: np.asarray(rows.labels) for split, rows in self.splits.items()}
        if "all" in features:
            metrics = _cross_validated(features, labels)
        else:
            metrics = _tested(features, labels, self.report_f1)
        metrics = self.prefix_name_to_metrics(metrics, self.name)
        self.store_metrics_in_model_card_data(model, metrics, epoch, steps)
        return metrics

    @property
    def description(self) -> str:
        """What the model card calls this evaluation."""
        return "Transfer Classification"


def _cross_validated(features: dict[str, Any], labels: dict[str, Any]) -> dict[str, float]:
    rows = features["all"], labels["all"]
    found = cross_validate(_search(GRID, _folds()), *rows, cv=_folds(), return_estimator=True)
    dev = [search.best_score_ for search in found["estimator"]]
    return {"accuracy": float(np.mean(found["test_score"])), "dev_accuracy": float(np.mean(dev))}


def _tested(features: dict[str, Any], labels: dict[str, Any], report_f1: bool) -> dict[str, float]:
    if "dev" in features:
        # -1 marks rows that are never held out.
        held_out = [-1] * len(labels["train"]) + [0] * len(labels["dev"])
        search = _search(GRID, PredefinedSplit(held_out), refit=False)
        search.fit(
            np.vstack([features["train"], features["dev"]]),
            np.concatenate([labels["train"], labels["dev"]]),
        )
    else:
        search = _search(GRID_OF_GIVEN_TEST, _folds(), refit=False)
        search.fit(features["train"], labels["train"])
    classifier = LogisticRegression(**search.best_params_, max_iter=MAX_STEPS)
    classifier.fit(features["train"], labels["train"])
    predicted = classifier.predict(features["test"])
    accuracy = float(accuracy_score(labels["test"], predicted))
    metrics = {"accuracy": accuracy, "dev_accuracy": float(search.best_score_)}
    if report_f1:
        metrics["f1"] = float(f1_score(labels["test"], predicted))
    return metrics


def _search(grid: Sequence[float], folds: Any, *, refit: bool = True) -> GridSearchCV:
    """Choose the C of the best mean accuracy over the folds, the smallest of equals."""
    return GridSearchCV(
        LogisticRegression(max_iter=MAX_STEPS),
        {"C": grid},
        cv=folds,
        scoring="accuracy",
        refit=refit,
    )


def _folds() -> StratifiedKFold:
    return StratifiedKFold(n_splits=FOLDS, shuffle=True, random_state=SEED)


def _in_order(rows: LabelledTexts) -> LabelledTexts:
    def lengths_and_label(row: int) -> list[Any]:
        return [*(len(column[row].split()) for column in rows.columns), rows.labels[row]]

    order = sorted(range(len(rows.labels)), key=lengths_and_label)
    columns = tuple(list(map(column.__getitem__, order)) for column in rows.columns)
    labels: Any = [rows.labels[row] for row in order]
    return LabelledTexts(columns, labels)


def _check(splits: Mapping[str, LabelledTexts], report_f1: bool) -> None:
    if set(splits) not in ({"all"}, {"train", "test"}, {"train", "dev", "test"}):
        wanted = "the split 'all', or 'train' and 'test' with or without 'dev'"
        raise UserError(f"Expected {wanted}, found {', '.join(splits) or 'none'}.")
    for split, rows in splits.items():
        if any(len(column) != len(rows.labels) for column in rows.columns) or len(
            rows.columns
        ) not in (1, 2):
            raise UserError(
                f"The split {split!r} needs one or two columns of texts, as long as its labels."
            )
    train = list(splits["train" if "train" in splits else "all"].labels)
    known = set(train)
    if len(known) < 2:
        raise UserError(f"A classifier needs two classes, found {len(known)}.")
    if "dev" not in splits:
        # The inner folds of 'all' have nine tenths of the rows.
        for label in sorted(known, key=str):
            if train.count(label) < FOLDS + ("all" in splits) * 2:
                raise UserError(
                    f"The class {label!r} has {train.count(label)} rows, too few for {FOLDS} folds "
                    "that each hold one."
                )
    for split in set(splits) - {"train", "all"}:
        new = set(splits[split].labels) - known
        if new:
            raise UserError(
                f"The split {split!r} holds the class {min(new, key=str)!r}, which train does not."
            )
    if report_f1 and ("all" in splits or known != {0, 1}):
        raise UserError("F1 needs a test split and the classes 0 and 1.")
