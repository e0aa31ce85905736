"""MTEB, or the sentence that says how to install it."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager

from st_jtcse.errors import UserError

try:
    import mteb as mteb
    from mteb.cache import ResultCache as ResultCache
    from mteb.get_tasks import TASK_LIST as TASK_LIST
    from mteb.models.model_implementations import MODEL_REGISTRY as MODEL_REGISTRY
    from mteb.models.model_meta import ModelMeta as ModelMeta
    from mteb.models.sentence_transformer_wrapper import (
        SentenceTransformerEncoderWrapper as SentenceTransformerEncoderWrapper,
    )
    from mteb.results import TaskResult as TaskResult
except ModuleNotFoundError as error:
    raise UserError("MTEB is not installed; install it with: pip install 'st-jtcse[evaluation]'.") from error


@contextmanager
def quietly() -> Iterator[None]:
    """Hold back MTEB's warnings: of tasks that were superseded, which the papers used, and of its own deprecations.

    2026-11: mteb 2.26 warns of its own argument ``fill_missing`` whenever it wraps a SentenceTransformer.
    """
    logger = logging.getLogger("mteb")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(level)
