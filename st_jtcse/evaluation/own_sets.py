"""Sets of one's own: a file's columns say what it measures, and one statistic over its items how a
model does.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.evaluation import SentenceEvaluator
from sklearn.cluster import KMeans
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import ndcg_score
from sklearn.model_selection import cross_val_predict
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from st_jtcse.correlation import pair_cosines, places, spearman_of_draws
from st_jtcse.data.column_names import (
    GRADED,
    IMAGE,
    QUERIES,
    SAME_OR_NOT,
    TOPICS,
    TOPICS_OF_IMAGES,
    TRIPLETS,
)
from st_jtcse.data.images import image_column
from st_jtcse.data.pairs import load_pairs
from st_jtcse.data.rows import Row, Source, checked_rows, number, rows_sha256, texts_of
from st_jtcse.errors import UserError
from st_jtcse.evaluation.measured_sets import OwnSet, Statistic
from st_jtcse.evaluation.searching import search_set
from st_jtcse.evaluation.set_columns import is_searched, kind_of_set
from st_jtcse.evaluation.unique_texts import Vectors

NEAREST = 10
FOLDS = 5


class OwnSetEvaluator(SentenceEvaluator):
    """Sentence-Transformers' form of an :class:`OwnSet`.

    Args:
        own: The set.
        name: Prefix of the metric; None: the set's name.
        batch_size: Texts encoded at once.

    Returns:
        ``{name}_{metric}``, the primary metric.

    Example:
        ::

            from pathlib import Path

            from st_jtcse.data import Source
            from st_jtcse.evaluation import OwnSetEvaluator, load_own_set

            evaluator = OwnSetEvaluator(load_own_set(Source(Path("intents.jsonl")), "intents"))
            print(evaluator(model))
    """

    def __init__(self, own: OwnSet, name: str | None = None, batch_size: int = 64) -> None:
        super().__init__()
        self.own, self.name, self.batch_size = own, own.name if name is None else name, batch_size
        self.metric = own.metric
        self.primary_metric = f"{self.name}_{own.metric}" if self.name else own.metric

    def __call__(  # type: ignore[override]  # ST's own evaluators narrow the model's type too
        self,
        model: SentenceTransformer,
        output_path: str | None = None,
        epoch: int = -1,
        steps: int = -1,
    ) -> dict[str, float]:
        """Evaluate the model; the arguments are those of Sentence-Transformers' evaluators."""
        score = self.own.score(self.own.statistic(model, self.batch_size))
        metrics = self.prefix_name_to_metrics({self.own.metric: score}, self.name)
        self.store_metrics_in_model_card_data(model, metrics, epoch, steps)
        return metrics


def load_own_set(
    source: Source, name: str, score_range: tuple[float, float] = (0.0, 5.0), hint: str = ""
) -> OwnSet:
    r"""Read a set, whose columns say what it is.

    - sentence1, sentence2, score: Spearman correlation of cosine and score.
    - sentence1, sentence2, label: average precision of the cosine; label 1: the same, 0: not.
    - text, label: mean of P@1, P@10, accuracy of the 10 nearest others, and V-measure of k-means
      with as many clusters as labels.
    - image, label: accuracy of a linear classifier on the embeddings, which are left as they are:
      fitted on the source's `fit_split`, else 5-fold cross-validation.
    - query, relevant: nDCG@10 of the query's own texts among those of all; several rows may share
      a query.
    - anchor, positive, negative: share of anchors nearer to the positive.

    A folder of a corpus with queries, or a source that names its `corpus`, is searched as a whole:
    nDCG@10 (`st_jtcse.evaluation.searching`).

    Args:
        source: The file or data set. One that lists its columns is of graded pairs.
        name: What to call it.
        score_range: Lowest and highest score of graded pairs.
        hint: For messages, what else helps where columns are missing.

    Raises:
        UserError: The source is missing or faulty, has none of these columns, or too little to
            measure.
    """
    if is_searched(source):
        return search_set(source, name)
    if source.columns is not None:
        return _graded(source, name, source.columns, score_range)
    columns = kind_of_set(source, hint)
    if source.fit_split is not None and columns != TOPICS_OF_IMAGES:
        raise UserError(
            f"{source.label}: a classifier is fitted on images alone; remove 'fit_split'."
        )
    return _READERS[columns](source, name, columns, score_range)


def _rows(
    source: Source, columns: Sequence[str], parse: Callable[[Row, Sequence[str]], Any]
) -> list[Any]:
    rows = list(checked_rows([source], "sets", columns, parse, hint=""))
    if len(rows) < 2:
        raise UserError(f"{source.label} holds {len(rows)} rows; a score needs at least 2.")
    return rows


def _graded(
    source: Source, name: str, columns: Sequence[str], score_range: tuple[float, float]
) -> OwnSet:
    pairs = load_pairs(source, score_range)
    texts = pairs.sentences1, pairs.sentences2
    measure = partial(_spearman, np.array(pairs.scores))
    return OwnSet(name, "spearman_cosine", texts, len(pairs.scores), pairs.sha256, measure, pairs)


def _duplicates(
    source: Source, name: str, columns: Sequence[str], score_range: tuple[float, float]
) -> OwnSet:
    def parse(row: Row, names: Sequence[str]) -> tuple[str, str, int]:
        first, second = texts_of(row, names[:2])
        label = number(row.values[names[2]])
        if label not in (0, 1):
            raise UserError(
                f"{row.place}: expected 0 or 1 in 'label', found {row.values[names[2]]!r}; correct "
                "it."
            )
        return first, second, int(label)

    rows = _rows(source, columns, parse)
    first, second, labels = zip(*rows)
    if len(set(labels)) == 1:
        raise UserError(f"{source.label}: every label is {labels[0]}; add pairs of the other kind.")
    measure = partial(_average_precision, np.array(labels))
    return OwnSet(name, "cosine_ap", (first, second), len(rows), rows_sha256(rows), measure)


def _labelled(
    source: Source, name: str, columns: Sequence[str], score_range: tuple[float, float]
) -> OwnSet:
    def parse(row: Row, names: Sequence[str]) -> tuple[str, ...]:
        label = row.values[names[1]]
        if label is None or label == "":
            raise UserError(f"{row.place}: 'label' is empty; fill it or remove the row.")
        return *texts_of(row, names[:1]), str(label)

    rows = _rows(source, columns, parse)
    texts, labels = zip(*rows)
    of_vectors = labelled_vectors(name, labels, rows_sha256(rows), source.label)
    return replace(of_vectors, columns=(texts,))


def labelled_vectors(name: str, labels: Sequence[str], sha256: str, place: str) -> OwnSet:
    """Return the set of texts with these labels, of which its measure is given the vectors;
    messages call it by its place.
    """
    if not 1 < len(set(labels)) < len(labels):
        found = f"{len(set(labels))} labels in {len(labels)} rows have nothing to tell apart"
        raise UserError(f"{place}: {found}; give two or more, one of them to several rows.")
    measure = partial(_of_labels, np.array(labels))
    return OwnSet(name, "labels", (labels,), len(labels), sha256, measure)


def _labelled_images(
    source: Source, name: str, columns: Sequence[str], score_range: tuple[float, float]
) -> OwnSet:
    def parse(row: Row, names: Sequence[str]) -> tuple[dict[str, Any], str]:
        image, label = row.image(names[0]), row.values[names[1]]
        if label is None or label == "":
            way = "fill it, or put the image into a folder of its label's name"
            raise UserError(f"{row.place}: the image has no label; {way}.")
        return image, str(label)

    both = [source]
    if source.fit_split is not None:
        both.append(replace(source, split=source.fit_split, limit=None))
    parts = [list(zip(*_rows(part, columns, parse))) for part in both]
    labels = [np.array(own) for _, own in parts]
    read = [image_column(images, IMAGE) for images, _ in parts]
    fewest = 2 if source.fit_split else FOLDS
    counts = np.unique(labels[-1], return_counts=True)[1]
    if len(counts) < 2 or counts.min() < fewest:
        found = f"{len(counts)} labels, of the rarest {counts.min()}"
        raise UserError(
            f"{both[-1].label}: a classifier needs {fewest} images of two labels or more, found "
            f"{found}."
        )
    digest = rows_sha256([*zip(*labels[:1]), *([part] for _, part in read)])
    pictures = tuple(part["image"] for part, _ in read)
    return OwnSet(
        name, "linear_accuracy", pictures, len(labels[0]), digest, partial(_linear, labels)
    )


def _queries(
    source: Source, name: str, columns: Sequence[str], score_range: tuple[float, float]
) -> OwnSet:
    rows = _rows(source, columns, texts_of)
    queries = list(dict.fromkeys(query for query, _ in rows))
    documents = list(dict.fromkeys(text for _, text in rows))
    if len(documents) < 2:
        raise UserError(
            f"{source.label}: all queries have one text, so nothing can be ranked; add others."
        )
    relevant = np.zeros((len(queries), len(documents)), dtype=np.float32)
    at, place = (
        {text: index for index, text in enumerate(texts)} for texts in (queries, documents)
    )
    for query, text in rows:
        relevant[at[query], place[text]] = 1
    return OwnSet(
        name,
        "ndcg@10",
        (queries, documents),
        len(queries),
        rows_sha256(rows),
        partial(_retrieval, relevant),
    )


def _triplets(
    source: Source, name: str, columns: Sequence[str], score_range: tuple[float, float]
) -> OwnSet:
    rows = _rows(source, columns, texts_of)
    return OwnSet(name, "cosine_accuracy", tuple(zip(*rows)), len(rows), rows_sha256(rows), _nearer)


_READERS: dict[
    tuple[str, ...], Callable[[Source, str, Sequence[str], tuple[float, float]], OwnSet]
] = {
    GRADED: _graded,
    SAME_OR_NOT: _duplicates,
    TOPICS: _labelled,
    TOPICS_OF_IMAGES: _labelled_images,
    QUERIES: _queries,
    TRIPLETS: _triplets,
}


def _cosines(first: Vectors, second: Vectors) -> npt.NDArray[np.float64]:
    return np.einsum("nh,nh->n", first.astype(np.float64), second.astype(np.float64))


def _spearman(scores: npt.NDArray[np.float64], first: Vectors, second: Vectors) -> Statistic:
    return spearman_of_draws(pair_cosines(first, second), scores)


def _average_precision(labels: npt.NDArray[np.int64], first: Vectors, second: Vectors) -> Statistic:
    ranked = places(-_cosines(first, second))

    def statistic(items: npt.NDArray[np.int64]) -> float:
        same = np.bincount(ranked[items], weights=labels[items])
        precision = np.cumsum(same) / np.maximum(np.cumsum(np.bincount(ranked[items])), 1)
        if same.any():
            return float(same @ precision / same.sum())
        return math.nan

    return statistic


def _nearer(anchors: Vectors, positives: Vectors, negatives: Vectors) -> Statistic:
    hits = _cosines(anchors, positives) > _cosines(anchors, negatives)
    return lambda items: float(hits[items].mean())


def _linear(labels: Sequence[npt.NDArray[Any]], images: Vectors, *fitted: Vectors) -> Statistic:
    classifier = make_pipeline(StandardScaler(), LogisticRegression(max_iter=1000))
    if fitted:
        found = classifier.fit(fitted[0], labels[1]).predict(images)
    else:
        found = cross_val_predict(classifier, images, labels[0], cv=FOLDS)
    hits = found == labels[0]
    return lambda items: float(hits[items].mean())


def _retrieval(
    relevant: npt.NDArray[np.float32], queries: Vectors, documents: Vectors
) -> Statistic:
    scores = queries @ documents.T
    each = np.array(
        [
            ndcg_score(relevant[[at]], scores[[at]], k=10, ignore_ties=True)
            for at in range(len(queries))
        ]
    )
    return lambda items: float(each[items].mean())


def _of_labels(labels: npt.NDArray[Any], texts: Vectors) -> Statistic:
    kinds, own = np.unique(labels, return_inverse=True)
    nearest = nearest_others(texts, min(NEAREST, len(texts) - 1))
    hits = own[nearest] == own[:, None]
    votes = np.apply_along_axis(np.bincount, 1, own[nearest], minlength=len(kinds))
    # Of labels with as many votes, the nearest neighbour's: it is worth half a vote more.
    votes = votes * 2 + (own[nearest[:, 0]][:, None] == np.arange(len(kinds)))
    parts = np.mean([hits[:, 0], hits.mean(axis=1), votes.argmax(axis=1) == own], axis=0)
    # That many texts have one embedding is seen in the score.
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        clusters = KMeans(len(kinds), n_init=1, random_state=0).fit_predict(texts)
    return lambda items: float(
        0.75 * parts[items].mean() + 0.25 * _v_measure(own[items], clusters[items])
    )


def _v_measure(labels: npt.NDArray[np.int64], clusters: npt.NDArray[np.int64]) -> float:
    """Return twice the mutual information over the sum of both entropies, which V-measure is."""
    pairs = labels * (clusters.max() + 1) + clusters
    both, own, found = (_entropy(each) for each in (pairs, labels, clusters))
    if own + found:
        return 2 * (own + found - both) / (own + found)
    return 1.0


def _entropy(values: npt.NDArray[np.int64]) -> float:
    shares = np.bincount(values) / len(values)
    shares = shares[shares > 0]
    return float(-shares @ np.log(shares))


def nearest_others(texts: Vectors, count: int, chunk: int = 1024) -> npt.NDArray[np.int64]:
    """Return each text's nearest others, nearest first, (n, count)."""
    found = []
    for start in range(0, len(texts), chunk):
        cosines = texts[start : start + chunk] @ texts.T
        rows = np.arange(len(cosines))
        cosines[rows, start + rows] = -np.inf
        near = np.argpartition(-cosines, count - 1, axis=1)[:, :count]
        order = np.argsort(-np.take_along_axis(cosines, near, axis=1), axis=1, kind="stable")
        found.append(np.take_along_axis(near, order, axis=1))
    return np.concatenate(found)
