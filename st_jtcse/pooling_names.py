"""How an encoder's tokens can make an embedding, by name; :mod:`st_jtcse.modules.loading` builds them."""

from __future__ import annotations

from typing import Literal

PoolingName = Literal["cls", "mean", "max", "first_last"]
# With what is learned, which only training can begin from nothing.
TrainedPoolingName = Literal["cls", "mean", "max", "first_last", "attention"]
