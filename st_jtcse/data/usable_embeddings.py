"""Embeddings of a frozen model that similarities can be made from, or the sentence that spoils them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from st_jtcse.errors import UserError
from st_jtcse.wording import shown


def check_embeddings(
    vectors: np.ndarray, texts: Sequence[str], model: str, corpus: Sequence[str], *, for_cosines: bool
) -> None:
    """Refuse embeddings that are not finite, or for cosines zero, naming the first such sentence and its row.

    Args:
        vectors: One embedding a text.
        texts: Some sentences of the corpus.
        model: What the model is, e.g. ``"teacher"``.
        corpus: All sentences.
        for_cosines: Whether a zero embedding, which has no cosine, is refused too.
    """
    for fault, rows in (
        ("is not finite", ~np.isfinite(vectors).all(axis=1)),
        ("is zero, so it has no cosine", for_cosines & (vectors == 0).all(axis=1)),
    ):
        if rows.any():
            text = texts[int(np.argmax(rows))]
            raise UserError(
                f"A {model}'s embedding of sentence {corpus.index(text) + 1}, {shown(text)}, {fault}; leave the "
                f"sentence out, or choose another {model}."
            )
