"""Embeddings of a frozen model that similarities can be made from, or the sentence that spoils them."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from st_jtcse.errors import UserError


def check_embeddings(
    vectors: np.ndarray, texts: Sequence[str], model: str, corpus: Callable[[], Sequence[str]], *, for_cosines: bool
) -> None:
    """Refuse embeddings that nothing can be compared with, naming the first such sentence and its row.

    Args:
        vectors: One embedding a text.
        texts: Some sentences of the corpus.
        model: What the model is, e.g. ``"teacher"``.
        corpus: Gives all sentences, where the row is looked up if need be.
        for_cosines: Whether a zero embedding, which has no cosine, is refused too.

    Raises:
        UserError: An embedding is not finite, or is zero.
    """
    faults = [("is not finite", ~np.isfinite(vectors).all(axis=1))]
    if for_cosines:
        faults.append(("is zero, so it has no cosine", (vectors == 0).all(axis=1)))
    for fault, rows in faults:
        if rows.any():
            text = texts[int(np.flatnonzero(rows)[0])]
            quoted = repr(text if len(text) <= 60 else f"{text[:57]}...")
            raise UserError(
                f"A {model}'s embedding of sentence {corpus().index(text) + 1}, {quoted}, {fault}; leave the sentence "
                f"out, or choose another {model}."
            )
