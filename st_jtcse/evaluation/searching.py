"""Search over a whole corpus: TREC's figures of each query, of a model, of BM25, and of both."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Any

import numpy as np
import numpy.typing as npt
from sentence_transformers import SentenceTransformer

from st_jtcse.data.judged_corpus import JudgedCorpus, load_judged_corpus
from st_jtcse.data.rows import Source
from st_jtcse.evaluation.jobs import Context
from st_jtcse.evaluation.measured_sets import OwnSet, OwnSetJob, Statistic
from st_jtcse.evaluation.shared_encoding import encode_shared
from st_jtcse.evaluation.suites import SEARCHED
from st_jtcse.evaluation.unique_texts import Vectors, checked_vectors
from st_jtcse.modules.closed_forms import unit_rows

logger = logging.getLogger(__name__)

NDCG = SEARCHED[0]
# What is searched by: the model, words alone, and the sum of both.
LEXICAL, SUMMED = "BM25", "with BM25"
DEEPEST = 100  # Documents of a ranking that figures look at
_SCORES = 1 << 23  # Scores that are held at a time
_TEXTS = 8192  # Documents that are encoded at a time
Scores = npt.NDArray[np.float32]
# From queries, as slices of them, to their scores of all texts, (queries, texts).
Scorer = Callable[[slice], Scores]


@dataclass(frozen=True)
class Ranking:
    """What a search found.

    Args:
        found: Places of each query's documents, best first, (queries, at most 100).
        figures: By metric the queries' figures, (queries,).
    """

    found: npt.NDArray[np.int64]
    figures: dict[str, npt.NDArray[np.float64]]

    @property
    def means(self) -> dict[str, float]:
        """The figures' means over the queries."""
        return {metric: float(values.mean()) for metric, values in self.figures.items()}

    def statistic(self, metric: str = NDCG) -> Statistic:
        """Return the mean of a metric over some of the queries."""
        values = self.figures[metric]
        return lambda items: float(values[items].mean())


@dataclass(frozen=True)
class SearchSet(OwnSet):
    """A corpus with queries as a set of one's own, whose items are the queries."""

    corpus: JudgedCorpus = field(kw_only=True)

    def vectors(self, model: SentenceTransformer, batch_size: int = 64) -> list[Vectors]:
        """Return the vectors of queries and texts, each by its own prompt or module."""
        self._tell_of_long_queries(model)
        return [unit_rows(each) for each in _encoded(model, self.corpus, batch_size)]

    def rankings(
        self, model: SentenceTransformer, batch_size: int = 64, lexical: bool = True
    ) -> dict[str, Ranking]:
        """Search by a model, as ``""``, and where bm25s is there by it and by the sum of both."""
        queries, texts = self.vectors(model, batch_size)
        return self.searched(queries, texts, lexical)

    def searched(
        self, queries: Vectors, texts: Vectors, lexical: bool = True
    ) -> dict[str, Ranking]:
        """Search by vectors, (queries, H) and (texts, H), as `rankings` does."""
        asked, held = unit_rows(queries), unit_rows(texts)

        def dense(rows: slice) -> Scores:
            return asked[rows] @ held.T

        found = {"": rank(self.corpus, dense)}
        by_words = self.by_words if lexical else None
        if by_words is not None:
            words, ranking = by_words

            def both(rows: slice) -> Scores:
                return z_scores(dense(rows)) + z_scores(words(rows))

            found |= {LEXICAL: ranking, SUMMED: rank(self.corpus, both)}
        return found

    @property
    def rows(self) -> dict[str, str]:
        """What tables show of it: metrics by label."""
        kinds = ("", LEXICAL, SUMMED) if self.by_words is not None else ("",)
        return {f"{self.name} {kind}".strip(): f"{kind} {NDCG}".strip() for kind in kinds}

    @property
    def note(self) -> str | None:
        """What to know of its scores."""
        corpus = self.corpus
        parts = [f"{len(corpus.queries)} queries, {len(corpus.names)} documents"]
        if corpus.without:
            parts.append(f"{corpus.without} queries without a relevant document are left out")
        if self.by_words is None:
            parts.append("for BM25 beside it: pip install 'st-jtcse[search]'")
        return "; ".join(parts)

    def job(self, source: str) -> SearchJob:
        """Return it as a task of `st-eval`."""
        return SearchJob(self, source)

    @cached_property
    def by_words(self) -> tuple[Scorer, Ranking] | None:
        """The search by BM25; None without bm25s."""
        words = bm25(self.corpus.texts, self.corpus.queries)
        if words is None:
            return None
        return (words, rank(self.corpus, words))

    def _tell_of_long_queries(self, model: SentenceTransformer) -> None:
        long = too_long(model, self.corpus.queries)
        if long:
            logger.warning(
                "%s: %d of %d queries are longer than the %s tokens that the model reads; it reads "
                "their beginning.",
                self.name,
                long,
                len(self.corpus.queries),
                model.max_seq_length,
            )


class SearchJob(OwnSetJob):
    """A corpus with queries as a task of `st-eval`; it keeps what each model found."""

    own: SearchSet

    def __init__(self, own: SearchSet, source: str) -> None:
        super().__init__(own, source)
        self.rankings: dict[str, dict[str, Ranking]] = {}

    def measured(self, context: Context) -> dict[str, Statistic]:
        """Return the model's figures, BM25's and those of both."""
        found = self.own.rankings(context.evaluated.model, context.batch_size)
        self.rankings[context.evaluated.name] = found
        return {
            f"{kind} {metric}".strip(): ranking.statistic(metric)
            for kind, ranking in found.items()
            for metric in SEARCHED
        }

    def compared(self, base: str, model: str) -> dict[str, tuple[OwnSet, Statistic, Statistic]]:
        """Return what a verdict beside another model is of, also where BM25 is summed."""
        found = super().compared(base, model)
        before, after = self.statistics[base], self.statistics[model]
        metric = f"{SUMMED} {NDCG}"
        if metric in before:
            found[f"{self.own.name} {SUMMED}"] = self.own, before[metric], after[metric]
        return found


def search_set(source: Source, name: str) -> SearchSet:
    """Read a corpus with queries; raises UserError where a file is missing or faulty."""
    return search_of(load_judged_corpus(source), name)


def search_of(corpus: JudgedCorpus, name: str) -> SearchSet:
    """Return a corpus with queries as a set that is called so."""
    columns, measure = (corpus.queries, corpus.texts), partial(_ndcg, corpus)
    items = len(corpus.queries)
    return SearchSet(name, NDCG, columns, items, corpus.sha256, measure, corpus=corpus)


def _ndcg(corpus: JudgedCorpus, queries: Vectors, texts: Vectors) -> Statistic:
    return rank(corpus, lambda rows: queries[rows] @ texts.T).statistic()


def rank(corpus: JudgedCorpus, scorer: Scorer) -> Ranking:
    r"""Search the corpus, and measure as `trec_eval` does.

    Of equal scores the document whose name is the later one comes first, which is TREC's rule. With
    g_r the grade of the document at rank r, g*_r that of the best possible ranking, and R relevant
    documents:

    .. math::

        nDCG@10 = \frac{\sum_{r=1}^{10} g_r / \log_2(r + 1)}{\sum_{r=1}^{10} g^*_r / \log_2(r + 1)}
        \qquad
        MAP@100 = \frac{1}{R} \sum_{r=1}^{100} [g_r > 0] P@r

    Recall@k is the share of the R among the first k, MRR@10 one over the rank of the first of them.

    Args:
        corpus: The corpus, its queries and grades.
        scorer: Returns the scores of some queries, of every text.

    References:
        https://github.com/usnistgov/trec_eval
    """
    found = np.concatenate([_best(corpus, scorer(rows)) for rows in _blocks(corpus)])
    own = [[grades.get(place, 0) for place in row] for row, grades in zip(found, corpus.grades)]
    grades = np.zeros((len(found), DEEPEST))
    grades[:, : found.shape[1]] = own
    return Ranking(found, _figures(grades, corpus.grades))


def _blocks(corpus: JudgedCorpus) -> Iterator[slice]:
    """Yield some queries at a time, the fewer the more texts they are compared with."""
    count = max(1, _SCORES // len(corpus.texts))
    return (slice(at, at + count) for at in range(0, len(corpus.queries), count))


def _best(corpus: JudgedCorpus, scores: Scores) -> npt.NDArray[np.int64]:
    """Return the places of the best documents, best first; of equal ones the first."""
    if len(corpus.starts) < len(corpus.texts):
        # A file is as near as its nearest passage.
        scores = np.maximum.reduceat(scores, corpus.starts, axis=1)
    count = min(DEEPEST, scores.shape[1])
    least = np.partition(scores, -count, axis=1)[:, -count]
    rows = []
    for row, bound in zip(scores, least):
        near = np.flatnonzero(row >= bound)
        rows.append(near[np.argsort(-row[near], kind="stable")][:count])
    return np.stack(rows)


def _figures(
    grades: npt.NDArray[np.float64], judged: Sequence[dict[int, int]]
) -> dict[str, npt.NDArray[np.float64]]:
    relevant = np.array([len(own) for own in judged])
    ideal = np.zeros((len(judged), 10))
    for row, own in zip(ideal, judged):
        best = sorted(own.values(), reverse=True)[:10]
        row[: len(best)] = best
    ranks = np.arange(1, DEEPEST + 1)
    discounts = 1 / np.log2(ranks[:10] + 1)
    hits = grades > 0
    precision = hits.cumsum(axis=1) / ranks
    values = (
        (grades[:, :10] @ discounts) / (ideal @ discounts),
        (precision * hits).sum(axis=1) / relevant,
        hits[:, :10].sum(axis=1) / relevant,
        hits.sum(axis=1) / relevant,
        (hits[:, :10] / ranks[:10]).max(axis=1),
    )
    return dict(zip(SEARCHED, values))


def bm25(texts: Sequence[str], queries: Sequence[str]) -> Scorer | None:
    """Return BM25's scores, k1 = 1.5 and b = 0.75, of all words; None where bm25s is not there.

    References:
        Lù, BM25S: Orders of magnitude faster lexical search via eager sparse scoring, 2024.
    """
    try:
        import bm25s
    except ImportError:
        return None
    # No list of stop words: a text may be of any language.
    how = {"stopwords": None, "show_progress": False}
    index = bm25s.BM25()
    index.index(bm25s.tokenize(list(texts), **how), show_progress=False)
    words = bm25s.tokenize(list(queries), return_ids=False, **how)

    def scorer(rows: slice) -> Scores:
        scores = np.zeros((len(words[rows]), len(texts)), np.float32)
        for own, known in zip(scores, words[rows]):
            if known:
                own[:] = index.get_scores(known)
        return scores

    return scorer


def z_scores(scores: Scores) -> Scores:
    """Return each query's scores less their mean, over their standard deviation."""
    spread = scores.std(axis=1, keepdims=True)
    return (scores - scores.mean(axis=1, keepdims=True)) / np.where(spread > 0, spread, 1)


def too_long(model: SentenceTransformer, texts: Sequence[str]) -> int:
    """Count the texts that a model cuts; 0 where its tokenizer cannot be asked."""
    longest = model.max_seq_length
    tokenizer = getattr(model, "tokenizer", None)
    if longest is None or not callable(tokenizer):
        return 0
    tokens = tokenizer(list(texts), truncation=False, verbose=False)["input_ids"]
    return sum(len(own) > longest for own in tokens)


def _encoded(
    model: SentenceTransformer, corpus: JudgedCorpus, batch_size: int
) -> tuple[Vectors, Vectors]:
    """Return the vectors of queries and texts; a model may have a prompt or a module for each."""
    how: dict[str, Any] = {"batch_size": batch_size, "show_progress_bar": False}
    dimension = model.get_embedding_dimension()
    ask, hold = partial(model.encode_query, **how), partial(model.encode_document, **how)
    asked = encode_shared(model, ask, corpus.queries, batch_size)
    queries = checked_vectors(asked, corpus.queries, dimension)
    texts = np.empty((len(corpus.texts), queries.shape[1]), np.float32)
    for at in range(0, len(texts), _TEXTS):
        part = corpus.texts[at : at + _TEXTS]
        found = encode_shared(model, hold, part, batch_size)
        texts[at : at + _TEXTS] = checked_vectors(found, part, dimension)
    return queries, texts
