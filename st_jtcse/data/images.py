"""Images as a column of `datasets`, which opens each where it is looked at."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from itertools import islice
from pathlib import Path
from typing import Any

import pyarrow as pa
from datasets import Dataset, DatasetInfo, Features, Image

# So many images are Python objects at a time; what is kept is their bytes, of files the paths
# alone.
_BLOCK = 1000


def image_column(images: Iterable[dict[str, Any]], name: str) -> tuple[Dataset, str]:
    """Return images, as :meth:`Row.image` gives them, as a column that is read in RGB, and the hash
    of their files.
    """
    images, chunks, digest = iter(images), [], hashlib.sha256()
    while block := list(islice(images, _BLOCK)):
        for image in block:
            digest.update(
                Path(image["path"]).read_bytes() if image["bytes"] is None else image["bytes"]
            )
        chunks.append(pa.array(block, Image.pa_type))
    column = pa.table({name: pa.chunked_array(chunks, Image.pa_type)})
    return Dataset(
        column, DatasetInfo(features=Features({name: Image(mode="RGB")}))
    ), digest.hexdigest()
