"""How a command's flags say what a model leaves open."""

from __future__ import annotations

from st_jtcse.errors import CodeNotTrusted, PoolerNeeded, PoolingNeeded

FLAGS = {
    PoolingNeeded: "add --pooling cls or --pooling mean",
    PoolerNeeded: "ask for random ones (--random-pooler)",
    CodeNotTrusted: "if you trust that, add --trust-remote-code",
}
