"""How an encoder's tokens can make an embedding, by name; :mod:`st_jtcse.modules.loading` builds them."""

from __future__ import annotations

from typing import Literal

# Those of Sentence-Transformers' Pooling, by its names, and the mean of the first and the last layer's tokens.
PoolingName = Literal["cls", "lasttoken", "max", "mean", "mean_sqrt_len_tokens", "weightedmean", "first_last"]
# With what is learned, which only training can begin from nothing.
TrainedPoolingName = Literal[
    "cls", "lasttoken", "max", "mean", "mean_sqrt_len_tokens", "weightedmean", "first_last", "attention"
]

# The names as people read them.
SPOKEN: dict[str, str] = {
    "cls": "CLS state",
    "lasttoken": "last token",
    "max": "max pooling",
    "mean": "mean pooling",
    "mean_sqrt_len_tokens": "sum over the root of the length",
    "weightedmean": "mean weighted by position",
    "first_last": "mean of the first and the last layer",
    "attention": "attention pooling",
}
