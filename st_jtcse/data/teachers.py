"""Embeddings of frozen teachers as training labels."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
from datasets import Dataset
from sentence_transformers import SentenceTransformer

from st_jtcse.errors import UserError


def with_teacher_labels(
    sentences: Dataset, teachers: Sequence[SentenceTransformer], weights: Sequence[float], batch_size: int = 64
) -> Dataset:
    r"""Add the column ``label`` that MSELoss and EmbedDistillLoss train on: :math:`\sum_k w_k t_k(x)`.

    Args:
        sentences: Dataset with a column ``sentence``.
        teachers: The teachers; their embeddings are summed as they are, without normalisation.
        weights: One factor a teacher.
        batch_size: Sentences a forward pass.

    Returns:
        The dataset with one float32 vector a sentence.

    Raises:
        UserError: The teachers' embedding sizes differ, so that they cannot be summed.
    """
    sizes = [teacher.get_embedding_dimension() for teacher in teachers]
    if len(set(sizes)) != 1:
        raise UserError(f"Teachers whose embeddings are summed must have one size, found {sizes}; leave one out.")
    texts = sentences["sentence"][:]
    total = np.zeros((len(texts), sizes[0] or 0), dtype=np.float32)
    for teacher, weight in zip(teachers, weights):
        total += weight * teacher.encode(texts, batch_size=batch_size, show_progress_bar=True)
    column = pa.FixedSizeListArray.from_arrays(pa.array(total.ravel()), total.shape[1])
    table = pa.table({"sentence": pa.array(texts), "label": column})
    return Dataset(table)
