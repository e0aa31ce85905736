"""Encoding that the processes of a run share: the first asks for it, each computes whole batches of
it, and the vectors are those of one process, to the bit.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
from sentence_transformers import SentenceTransformer
from sentence_transformers.util.distributed import distributed_evaluation
from torch import Tensor

from st_jtcse import processes
from st_jtcse.evaluation.recalled_vectors import encode_recalled

Result = TypeVar("Result")
Rows = npt.NDArray[np.int64]


def shared(model: Any, work: Callable[[], Result]) -> Result | None:
    """Do some work in the first process, the others encoding a part of what it asks the model for.

    Every process comes here with the same model. Returns what the work does; None in the others.
    """
    found, failure = None, None
    with distributed_evaluation(model) as works:
        if works:
            try:
                found = work()
            except BaseException as error:
                # Raised here alone: the others hear of it as of any end of a process.
                failure = error
    if failure is not None:
        raise failure
    return found


def found_together(model: Any, work: Callable[[], Result]) -> Result:
    """Return what some work comes to, in every process: done by the first as :func:`shared` does.

    The result is sent to the others, so it is small beside the work.
    """
    found: Result = processes.gathered(shared(model, work))[0]
    return found


def encode_shared(
    model: SentenceTransformer, encode: Callable[..., Any], texts: Sequence[str], batch_size: int
) -> Any:
    """Return the texts' vectors by one of the model's methods.

    A batch is padded to its longest text, and what is padded otherwise may differ in its last bit.
    So each process is given batches of those that one would make of all: Sentence-Transformers
    sorts texts by length, and of a list gives each process a part of the same size.

    Args:
        model: The model.
        encode: From a list of texts, and a ``device``, to their vectors.
        texts: What to encode.
        batch_size: Texts that `encode` puts into a batch.
    """
    count = processes.count()
    if count == 1 or not texts:
        return encode_recalled(model, encode, texts)
    lengths = np.array([-len(text) for text in texts])
    order = np.argsort(lengths)
    batches = order[: len(order) - len(order) % (count * batch_size)].reshape(-1, batch_size)
    parts = [_sorted_to(batches[rank::count].ravel(), lengths) for rank in range(count)]
    together, rest = np.concatenate(parts), _sorted_to(order[batches.size :], lengths)
    found = []
    for rows, how in ((together, {}), (rest, of_first_alone(model))):
        if len(rows):
            found.append(_rows(encode([texts[at] for at in rows], **how)))
    return np.concatenate(found)[np.argsort(np.concatenate([together, rest]))]


def of_first_alone(model: SentenceTransformer) -> dict[str, Any]:
    """Return what keeps an encoding to the process that asks: a device that is named."""
    return {} if processes.count() == 1 else {"device": str(model.device)}


def _sorted_to(rows: Rows, lengths: Rows) -> Rows:
    """Return rows in an order that a sort by length, which moves equal ones, turns into theirs."""
    result = np.empty_like(rows)
    result[np.argsort(lengths[rows])] = rows
    return result


def _rows(vectors: Any) -> npt.NDArray[np.float32]:
    found = vectors.float().cpu() if isinstance(vectors, Tensor) else vectors
    return np.asarray(found, dtype=np.float32)
