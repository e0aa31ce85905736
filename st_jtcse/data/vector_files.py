"""Vectors of a model that is not at hand, such as one behind an API, from a file."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq
from safetensors import SafetensorError
from safetensors.numpy import load_file

from st_jtcse.data.fitted_maps import checked
from st_jtcse.errors import UserError
from st_jtcse.hashing import sha256
from st_jtcse.modules.closed_forms import unit_rows

SUFFIXES = (".npy", ".safetensors", ".parquet")
_NAMES = ("vector", "vectors", "embedding", "embeddings")


@dataclass(frozen=True, eq=False)
class VectorFile:
    """Vectors as a file has them, at length 1.

    Args:
        vectors: (n, H) float32.
        labels: A label of each, where the file has them.
        sha256: The file's hash.
    """

    vectors: npt.NDArray[np.float32]
    labels: list[str] | None
    sha256: str


def load_vectors(path: Path) -> VectorFile:
    """Read vectors.

    A .npy file holds one matrix; a .safetensors file one, or one called vectors or embeddings; a
    .parquet file has the column vector or embedding, of lists, and may have the column label.

    Raises:
        UserError: The file cannot be read or holds something else, the vectors differ in size, or
            one is zero or not finite.
    """
    readers = {".npy": _npy, ".safetensors": _safetensors, ".parquet": _parquet}
    if path.suffix not in readers:
        raise UserError(
            f"{path}: expected vectors in a file that ends with {', '.join(SUFFIXES)}, found "
            f"{path.suffix or 'no ending'!r}; convert it."
        )
    if not path.is_file():
        raise UserError(f"{path}: expected a file of vectors, found none; correct the path.")
    try:
        rows, labels = readers[path.suffix](path)
        vectors = unit_rows(checked(rows).astype(np.float64)).astype(np.float32)
    except (SafetensorError, pa.ArrowException, ValueError, EOFError) as error:
        raise UserError(f"{path} cannot be read as {path.suffix[1:]}: {error}.") from None
    except UserError as error:
        raise UserError(f"{path}: {error}") from None
    return VectorFile(vectors, labels, sha256(path))


def _npy(path: Path) -> tuple[Any, None]:
    return np.load(path, mmap_mode="r", allow_pickle=False), None


def _safetensors(path: Path) -> tuple[Any, None]:
    found = load_file(path)
    named = [name for name in _NAMES if name in found]
    names = named or list(found)
    if len(names) != 1:
        raise UserError(
            f"expected one array, or one called {_NAMES[1]!r}, found {', '.join(found) or 'none'}; "
            "keep one."
        )
    return found[names[0]], None


def _parquet(path: Path) -> tuple[Any, list[str] | None]:
    table = pq.read_table(path)
    named = [name for name in _NAMES if name in table.column_names]
    if len(named) != 1:
        raise UserError(
            f"expected a column called {_NAMES[0]!r}, found {', '.join(table.column_names)}; "
            "rename it."
        )
    rows = table[named[0]].to_pylist()
    empty = [number for number, row in enumerate(rows, 1) if not row]
    if empty:
        raise UserError(f"row {empty[0]} has no vector; leave it out.")
    if "label" not in table.column_names:
        return rows, None
    return rows, list(map(str, table["label"].to_pylist()))
