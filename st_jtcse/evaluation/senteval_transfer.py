"""Logistic regression on frozen embeddings by SentEval's protocol, as a Sentence-Transformers evaluator."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.evaluation import SentenceEvaluator
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import accuracy_score, f1_score
from sklearn.model_selection import GridSearchCV, PredefinedSplit, StratifiedKFold

from st_jtcse.evaluation.unique_texts import UniqueTexts

# SentEval's seed, folds and grids of its scikit-learn classifiers.
SEED = 1111
FOLDS = 10
GRID = tuple(2.0**exponent for exponent in range(-2, 4))
GRID_OF_GIVEN_TEST = tuple(2.0**exponent for exponent in range(-1, 6))
# Where SentEval's 100 steps of scikit-learn's time end before the solver does, ours goes on.
MAX_STEPS = 2000


@dataclass(frozen=True)
class LabelledTexts:
    """Texts with a class each.

    Args:
        columns: One column of texts, or two for pairs.
        labels: Class of each row.
    """

    columns: tuple[Sequence[str], ...]
    labels: Sequence[int] | Sequence[str]


class SentEvalTransferEvaluator(SentenceEvaluator):
    """Accuracy of a logistic regression on the model's embeddings, its C chosen without the test rows.

    A row's features are its text's embedding, or |u - v| and u * v, concatenated, for a pair. Rows come in SentEval's
    order (by length, then label), so folds are those that SentEval draws. By the splits given:

    - ``all``: 10-fold cross-validation; in each fold C is chosen by 10 inner folds of the fold's training rows.
    - ``train`` and ``test``: C is chosen by 10 folds of train.
    - ``train``, ``dev`` and ``test``: C is chosen on dev; the final fit is on train alone.

    C is one of 2^-2..2^3, with train and test 2^-1..2^5.

    Args:
        splits: The rows by split.
        name: Prefix of the metrics.
        batch_size: Sentences encoded at once.
        report_f1: Whether to report F1 of the class 1 beside the accuracy, as MRPC does; needs a test split.

    Returns:
        ``{name}_accuracy`` (the primary metric), ``{name}_dev_accuracy`` of the chosen C, and ``{name}_f1``.

    Raises:
        ValueError: The splits are none of the three, a class has fewer training rows than there are folds, test holds
            a class that train does not, or F1 is asked for without a test split of the classes 0 and 1.

    Example:
        ::

            from sentence_transformers import SentenceTransformer
            from st_jtcse.evaluation import LabelledTexts, SentEvalTransferEvaluator

            rows = LabelledTexts((["a dog", "a cat", "one man", "one child"] * 10,), [0, 0, 1, 1] * 10)
            evaluator = SentEvalTransferEvaluator({"train": rows, "test": rows}, name="beings")
            results = evaluator(SentenceTransformer("path/to/encoder_1"))
            print(results[evaluator.primary_metric])

    References:
        Conneau and Kiela, SentEval, LREC 2018, Section 3.
    """

    def __init__(
        self, splits: Mapping[str, LabelledTexts], name: str = "", batch_size: int = 64, *, report_f1: bool = False
    ) -> None:
        super().__init__()
        _check(splits, report_f1)
        self.splits = {split: _in_order(rows) for split, rows in splits.items()}
        self.name = name
        self.batch_size = batch_size
        self.report_f1 = report_f1
        self.primary_metric = f"{name}_accuracy" if name else "accuracy"

    def __call__(  # type: ignore[override]  # ST's own evaluators narrow the model's type too
        self, model: SentenceTransformer, output_path: str | None = None, epoch: int = -1, steps: int = -1
    ) -> dict[str, float]:
        """Evaluate the model; the arguments are those of Sentence-Transformers' evaluators."""
        features = self._features(model)
        labels = {split: np.asarray(rows.labels) for split, rows in self.splits.items()}
        if "all" in features:
            metrics = _cross_validated(features["all"], labels["all"])
        else:
            metrics = _tested(features, labels, self.report_f1)
        metrics = self.prefix_name_to_metrics(metrics, self.name)
        self.store_metrics_in_model_card_data(model, metrics, epoch, steps)
        return metrics

    def _features(self, model: SentenceTransformer) -> dict[str, Any]:
        texts = [text for rows in self.splits.values() for column in rows.columns for text in column]
        vectors = UniqueTexts(model.get_embedding_dimension()).encode(
            texts, lambda missing: model.encode(missing, batch_size=self.batch_size, show_progress_bar=False)
        )
        features, start = {}, 0
        for split, rows in self.splits.items():
            size = len(rows.labels)
            parts = [vectors[start + part * size :][:size] for part in range(len(rows.columns))]
            features[split] = _pair_features(*parts) if len(parts) == 2 else parts[0]
            start += size * len(parts)
        return features

    @property
    def description(self) -> str:
        """What the model card calls this evaluation."""
        return "Transfer Classification"


def _pair_features(first: Any, second: Any) -> Any:
    return np.hstack([np.abs(first - second), first * second])


def _cross_validated(features: Any, labels: Any) -> dict[str, float]:
    dev, test = [], []
    for train, held_out in _folds().split(features, labels):
        c, dev_accuracy = _choose_c(features[train], labels[train], GRID, _folds())
        dev.append(dev_accuracy)
        test.append(_fitted(features[train], labels[train], c).score(features[held_out], labels[held_out]))
    return {"accuracy": float(np.mean(test)), "dev_accuracy": float(np.mean(dev))}


def _tested(features: dict[str, Any], labels: dict[str, Any], report_f1: bool) -> dict[str, float]:
    if "dev" in features:
        # -1 marks rows that are never held out.
        held_out = [-1] * len(labels["train"]) + [0] * len(labels["dev"])
        c, dev_accuracy = _choose_c(
            np.vstack([features["train"], features["dev"]]),
            np.concatenate([labels["train"], labels["dev"]]),
            GRID,
            PredefinedSplit(held_out),
        )
    else:
        c, dev_accuracy = _choose_c(features["train"], labels["train"], GRID_OF_GIVEN_TEST, _folds())
    predicted = _fitted(features["train"], labels["train"], c).predict(features["test"])
    metrics = {"accuracy": float(accuracy_score(labels["test"], predicted)), "dev_accuracy": dev_accuracy}
    return metrics | ({"f1": float(f1_score(labels["test"], predicted))} if report_f1 else {})


def _choose_c(features: Any, labels: Any, grid: Sequence[float], folds: Any) -> tuple[float, float]:
    """Return the C of the best mean accuracy over the folds, the smallest of equals, and that accuracy."""
    classifier = LogisticRegression(max_iter=MAX_STEPS)
    search = GridSearchCV(classifier, {"C": grid}, cv=folds, scoring="accuracy", refit=False)
    search.fit(features, labels)
    return float(search.best_params_["C"]), float(search.best_score_)


def _fitted(features: Any, labels: Any, c: float) -> LogisticRegression:
    return LogisticRegression(C=c, max_iter=MAX_STEPS).fit(features, labels)


def _folds() -> StratifiedKFold:
    return StratifiedKFold(n_splits=FOLDS, shuffle=True, random_state=SEED)


def _in_order(rows: LabelledTexts) -> LabelledTexts:
    lengths = [[len(text.split()) for text in column] for column in rows.columns]
    order = sorted(range(len(rows.labels)), key=lambda row: (*(column[row] for column in lengths), rows.labels[row]))
    columns = tuple([column[row] for row in order] for column in rows.columns)
    labels: Any = [rows.labels[row] for row in order]
    return LabelledTexts(columns, labels)


def _check(splits: Mapping[str, LabelledTexts], report_f1: bool) -> None:
    if set(splits) not in ({"all"}, {"train", "test"}, {"train", "dev", "test"}):
        raise ValueError(
            "Expected the split 'all', or 'train' and 'test' with or without 'dev', found "
            f"{', '.join(splits) or 'none'}."
        )
    for split, rows in splits.items():
        if any(len(column) != len(rows.labels) for column in rows.columns) or len(rows.columns) not in (1, 2):
            raise ValueError(f"The split {split!r} needs one or two columns of texts, as long as its labels.")
    train = list(splits["train" if "train" in splits else "all"].labels)
    known = set(train)
    if len(known) < 2:
        raise ValueError(f"A classifier needs two classes, found {len(known)}.")
    if "dev" not in splits:
        # The inner folds of 'all' have nine tenths of the rows.
        for label in sorted(known, key=str):
            if train.count(label) < FOLDS + ("all" in splits) * 2:
                raise ValueError(
                    f"The class {label!r} has {train.count(label)} rows, too few for {FOLDS} folds that each hold one."
                )
    for split in set(splits) - {"train", "all"}:
        new = set(splits[split].labels) - known
        if new:
            raise ValueError(f"The split {split!r} holds the class {min(new, key=str)!r}, which train does not.")
    if report_f1 and ("all" in splits or known != {0, 1}):
        raise ValueError("F1 needs a test split and the classes 0 and 1.")
