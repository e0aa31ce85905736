"""Embeddings of frozen models: checked, and as training labels encoded once and kept in half
precision on the disk.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Literal

import numpy as np
import pyarrow as pa
from datasets import Dataset, concatenate_datasets
from sentence_transformers import SentenceTransformer

from st_jtcse.data.encoded import BATCH, kept_vectors, shard_of, split
from st_jtcse.data.shards import Computation, cached_columns
from st_jtcse.errors import UserError
from st_jtcse.hashing import embedding_sha256
from st_jtcse.wording import shown

Form = Literal["sum", "concatenation"]


def with_teacher_labels(
    sentences: Dataset,
    sentences_sha256: str,
    teachers: Sequence[SentenceTransformer],
    weights: Sequence[float],
    cache_dir: Path,
    *,
    form: Form = "sum",
    shard_size: int | None = None,
) -> Dataset:
    r"""Add the column ``label``: one float16 vector a sentence, made from all teachers' embeddings
    t_k(x).

    ``"sum"`` is what MSELoss and EmbedDistillLoss train on. The Gram matrix of ``"concatenation"``
    is the weighted sum of the teachers' cosine matrices, which is what a loss over similarities
    needs:

    .. math:: \sum_k w_k t_k(x) \qquad \text{or} \qquad
        \left[\sqrt{w_1}\, t_1(x) / \|t_1(x)\|, \dots, \sqrt{w_K}\, t_K(x) / \|t_K(x)\|\right]

    The labels are memory-mapped from a file in `cache_dir`, used again for the same sentences,
    teachers and weights. Raises UserError as :func:`encoder_of` does.
    """
    encode = encoder_of(teachers, weights, form, sentences["sentence"])
    known = [kept_vectors(each, sentences, sentences_sha256, cache_dir) for each in teachers]

    def compute(rows: range) -> pa.Table:
        part = slice(rows.start, rows.stop)
        return encode(sentences[rows]["sentence"], [each and each.rows[part] for each in known])

    settings = {
        "sentences": sentences_sha256,
        "teachers": [embedding_sha256(teacher) for teacher in teachers],
        "weights": list(weights),
        "form": form,
        "batch_size": BATCH,
    }
    own = (settings, sentences, compute, shard_size or shard_of(sentences))
    job = Computation("teacher", *own, by_rows=True, row_bytes=2 * label_size(teachers, form))
    return concatenate_datasets([sentences, cached_columns(job, cache_dir)], axis=1)


def encoder_of(
    teachers: Sequence[SentenceTransformer],
    weights: Sequence[float],
    form: Form,
    corpus: Sequence[str] | None = None,
) -> Callable[..., pa.Table]:
    """Return what makes the column of :func:`with_teacher_labels` of some sentences, those of a
    `corpus` or any; it may be given what is known of the teachers' encoders too.

    Teachers of one encoder share its work. UserError where the weights do not fit, then where an
    embedding is not finite, beyond half precision, or zero in a concatenation.
    """
    if len(weights) != len(teachers):
        raise UserError(
            f"Expected one weight per teacher, found {len(weights)} for {len(teachers)}; give as "
            "many."
        )
    if form == "concatenation" and min(weights) < 0:
        raise UserError(
            f"Weights of similarities cannot be negative, found {min(weights):g}; leave that "
            "teacher out."
        )
    label_size(teachers, form)
    parts = [split(teacher) for teacher in teachers]
    digests = [embedding_sha256(encoder) for encoder, _ in parts]

    def encode(texts: list[str], known: Sequence[np.ndarray | None] = ()) -> pa.Table:
        found = {digest: own for digest, own in zip(digests, known) if own is not None}
        embeddings = []
        for digest, (encoder, ending) in zip(digests, parts):
            if digest not in found:
                found[digest] = np.asarray(
                    encoder.encode(texts, batch_size=BATCH, show_progress_bar=False)
                )
            embeddings.append(ending(found[digest]))
        for vectors in embeddings:
            check_embeddings(vectors, texts, "teacher", corpus, for_cosines=form == "concatenation")
        return pa.table({"label": _combined(embeddings, weights, form)})

    return encode


def label_size(teachers: Sequence[SentenceTransformer], form: Form = "sum") -> int:
    """Return the length of the label vectors; embeddings to be summed that differ in size are
    refused.
    """
    sizes = [int(teacher.get_embedding_dimension() or 0) for teacher in teachers]
    if form == "concatenation":
        return sum(sizes)
    if len(set(sizes)) != 1:
        raise UserError(
            f"Teachers whose embeddings are summed must have one size, found {sizes}; choose "
            "teachers of one size."
        )
    return sizes[0]


def check_embeddings(
    vectors: np.ndarray,
    texts: Sequence[str],
    model: str,
    corpus: Sequence[str] | None,
    *,
    for_cosines: bool,
) -> None:
    """Refuse embeddings of texts that are not finite, or for cosines zero, naming the first
    sentence and its row.

    The row is that of the corpus, if there is one; `model` is what the model is, e.g.
    ``"teacher"``.
    """
    for fault, rows in (
        ("is not finite", ~np.isfinite(vectors).all(axis=1)),
        ("is zero, so it has no cosine", for_cosines & (vectors == 0).all(axis=1)),
    ):
        if rows.any():
            text = texts[int(np.argmax(rows))]
            row = "" if corpus is None else f"{corpus.index(text) + 1}, "
            raise UserError(
                f"A {model}'s embedding of sentence {row}{shown(text)}, {fault}; leave the "
                f"sentence out, or choose another {model}."
            )


def _combined(
    embeddings: Sequence[np.ndarray], weights: Sequence[float], form: Form
) -> pa.FixedSizeListArray:
    weighted = list(zip(weights, embeddings))
    if form == "sum":
        vectors = np.asarray(sum(weight * own for weight, own in weighted))
    else:
        parts = [
            weight**0.5 * own / np.linalg.norm(own, axis=1, keepdims=True)
            for weight, own in weighted
        ]
        vectors = np.concatenate(parts, axis=1)
    with np.errstate(over="ignore"):  # Told below, with the row's reason.
        half = vectors.astype(np.float16)
    if not np.isfinite(half).all():
        raise UserError(
            f"A teacher's embedding has a component of {np.abs(vectors).max():g}, beyond half "
            "precision (65504); lower the teachers' weights, or check the teacher."
        )
    return pa.FixedSizeListArray.from_arrays(pa.array(half.ravel()), half.shape[1])
