"""How an encoder's tokens can make an embedding, by name; :mod:`st_jtcse.modules.loading` builds
them.
"""

from __future__ import annotations

from typing import Literal

# Those of Sentence-Transformers' Pooling, by its names; the mean of two layers' tokens; the poolers
# of a twin's towers.
PoolingName = Literal[
    "cls",
    "lasttoken",
    "max",
    "mean",
    "mean_sqrt_len_tokens",
    "weightedmean",
    "first_last",
    "pooler",
]
# With what is learned, which only training can begin from nothing.
TrainedPoolingName = Literal[PoolingName, "attention"]
# Of which a sum of towers is made by each tower alone.
TowerPoolingName = Literal["cls", "mean", "first_last", "lasttoken", "pooler"]

# The names as people read them.
SPOKEN: dict[str, str] = {
    "cls": "CLS state",
    "lasttoken": "last token",
    "max": "max pooling",
    "mean": "mean pooling",
    "mean_sqrt_len_tokens": "sum over the root of the length",
    "weightedmean": "mean weighted by position",
    "first_last": "mean of the first and the last layer",
    "pooler": "pooler output",
    "attention": "attention pooling",
}
