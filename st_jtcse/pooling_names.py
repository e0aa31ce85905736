"""How an encoder's tokens can make an embedding, by name; :mod:`st_jtcse.modules.loading` builds them."""

from __future__ import annotations

from typing import Literal

PoolingName = Literal["cls", "mean", "max", "first_last", "lasttoken", "pooler"]
# With what is learned, which only training can begin from nothing.
TrainedPoolingName = Literal["cls", "mean", "max", "first_last", "lasttoken", "pooler", "attention"]
# Of which a sum of towers is made by each tower alone.
TowerPoolingName = Literal["cls", "mean", "first_last", "lasttoken", "pooler"]
