"""Encodes each text once, however often it is asked for."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
from sentence_transformers import SentenceTransformer
from torch import Tensor

from st_jtcse.errors import UserError
from st_jtcse.evaluation.shared_encoding import encode_shared, of_first_alone

Vectors = npt.NDArray[np.float32]
# 768 float32 components each: about 300 MB. A corpus of more texts has few duplicates, and is not
# kept.
REMEMBERED = 100_000
# Images that are open at a time.
_OPEN = 256


class UniqueTexts:
    """Vectors of texts met so far, each of `dimension` components (None: any number).

    With more than `remembered` vectors, all are forgotten first.
    """

    def __init__(self, dimension: int | None, remembered: int = REMEMBERED) -> None:
        self.dimension = dimension
        self.remembered = remembered
        self._known: dict[tuple[Hashable, str], Any] = {}

    def encode(
        self, texts: Sequence[str], encode: Callable[[list[str]], Any], kind: Hashable = None
    ) -> Vectors:
        """Return the texts' vectors, (len(texts), H) float32; `encode` computes those of texts not
        met before.

        Texts of one `kind`, e.g. with one prompt, share their vectors. Raises UserError where the
        model gives vectors that are not finite or not of the expected size.
        """
        missing = [text for text in dict.fromkeys(texts) if (kind, text) not in self._known]
        if len(self._known) + len(missing) > self.remembered:
            self._known.clear()
            missing = list(dict.fromkeys(texts))
        found = {}
        if missing:
            vectors = checked_vectors(encode(missing), missing, self.dimension)
            found = {(kind, text): vector for text, vector in zip(missing, vectors)}
        if len(self._known) + len(found) <= self.remembered:
            self._known.update(found)
            found = self._known
        return np.stack([found[kind, text] for text in texts])


def encode_columns(
    model: SentenceTransformer, columns: Sequence[Sequence[Any]], batch_size: int
) -> list[Vectors]:
    """Return the vectors of columns of texts, each encoded once, or of images; UserError as
    `UniqueTexts` does.
    """
    how: dict[str, Any] = {"batch_size": batch_size, "show_progress_bar": False}
    kind = "text" if isinstance(columns[0][0], str) else "image"
    _check_kind(model, kind)
    if kind == "image":
        how |= of_first_alone(model)
        return [np.concatenate(list(_of_images(model, column, how))) for column in columns]
    vectors = UniqueTexts(model.get_embedding_dimension()).encode(
        [text for column in columns for text in column],
        lambda missing: encode_shared(model, partial(model.encode, **how), missing, batch_size),
    )
    return np.split(vectors, np.cumsum([len(column) for column in columns])[:-1])


def encode_apart(
    model: SentenceTransformer, columns: Sequence[Sequence[str]], batch_size: int
) -> list[Vectors]:
    """Return the vectors of columns of texts, each column encoded by itself as it is, which is what
    Sentence-Transformers' evaluators do; UserError as `UniqueTexts` does.
    """
    _check_kind(model, "text")
    how: dict[str, Any] = {"batch_size": batch_size, "show_progress_bar": False}
    dimension = model.get_embedding_dimension()
    encode = partial(model.encode, **how)
    return [
        checked_vectors(encode_shared(model, encode, texts, batch_size), texts, dimension)
        for texts in columns
    ]


def _check_kind(model: SentenceTransformer, kind: str) -> None:
    if kind not in getattr(model, "modalities", [kind]):
        raise UserError(
            f"The set is one of {kind}s, which the model does not read; give another set, or "
            "another model."
        )


def _of_images(
    model: SentenceTransformer, images: Sequence[Any], how: dict[str, Any]
) -> Iterator[Vectors]:
    for at in range(0, len(images), _OPEN):
        part = list(images[at : at + _OPEN])
        yield checked_vectors(model.encode(part, **how), part, model.get_embedding_dimension())


def checked_vectors(vectors: Any, texts: Sequence[Any], dimension: int | None) -> Vectors:
    """Return what a model gave for texts, (n, H) float32; UserError as `UniqueTexts` does."""
    rows: Vectors = np.asarray(
        vectors.float().cpu() if isinstance(vectors, Tensor) else vectors, dtype=np.float32
    )
    if rows.ndim != 2 or len(rows) != len(texts) or dimension not in (None, rows.shape[1]):
        raise UserError(
            f"The model gives embeddings of shape {rows.shape} where ({len(texts)}, "
            f"{dimension or 'any'}) was expected; check the pooling's configuration in its folder."
        )
    finite = np.isfinite(rows).all(axis=1)
    if not finite.all():
        raise UserError(
            "The model gives NaN or infinite values, e.g. for "
            f"{texts[int(np.argmin(finite))]!r:.60}; its scores would mean nothing: check the run "
            "that trained it."
        )
    return rows
