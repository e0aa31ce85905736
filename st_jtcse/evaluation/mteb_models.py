"""MTEB, or the sentence that says how to install it, and models under a name and revision of their
own in it.
"""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from datasets import Dataset
from sentence_transformers import SentenceTransformer
from torch.utils.data import DataLoader

from st_jtcse.errors import UserError
from st_jtcse.evaluation.shared_encoding import encode_shared
from st_jtcse.evaluation.unique_texts import UniqueTexts
from st_jtcse.hashing import embedding_sha256
from st_jtcse.modules.loading import load_sentence_transformer
from st_jtcse.pooling_names import PoolingName

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
    raise UserError(
        "MTEB is not installed; install it with: pip install 'st-jtcse[evaluation]'."
    ) from error


@contextmanager
def quietly() -> Iterator[None]:
    """Hold back MTEB's warnings: of tasks that were superseded, which the papers used, and of its
    own deprecations.

    2026-11: mteb 2.26 warns of its own argument ``fill_missing`` whenever it wraps a
    SentenceTransformer.
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


class UniqueTextEncoder(SentenceTransformerEncoderWrapper):
    """A SentenceTransformer for MTEB that encodes each text of a task once.

    MTEB encodes the columns of a task one by one, with all their repetitions. It keeps results by
    name and revision, which are the same for all models loaded from folders; here the revision is
    the hash of what decides the embeddings. A name in MTEB without ``/`` is put under ``local/``.

    Example:
        ::

            from sentence_transformers import SentenceTransformer
            from st_jtcse.evaluation.mteb_models import UniqueTextEncoder

            encoder = UniqueTextEncoder(SentenceTransformer("path/to/encoder_1"), "mine")
            print(
                encoder.mteb_model_meta.name
            )  # For mteb.evaluate(encoder, mteb.get_tasks(tasks=["STS12"]))
    """

    def __init__(self, model: SentenceTransformer, name: str) -> None:
        with quietly():
            super().__init__(model)
        self.mteb_model_meta = model_meta(model, name)
        self._texts = UniqueTexts(model.get_embedding_dimension())

    def encode(
        self, inputs: Any, *, task_metadata: Any, prompt_type: Any = None, **kwargs: Any
    ) -> Any:
        """Encode a task's texts; the arguments are those of MTEB's encoders."""
        texts = [text for batch in inputs for text in batch["text"]]

        size = kwargs.get("batch_size", 32)

        def encode(missing: Sequence[str], **where: Any) -> Any:
            loader: Any = DataLoader(Dataset.from_dict({"text": missing}), batch_size=size)
            return super(UniqueTextEncoder, self).encode(
                loader, task_metadata=task_metadata, prompt_type=prompt_type, **kwargs, **where
            )

        # Prompts differ from task to task; without any, tasks share their sentences.
        task = task_metadata.name if any((self.model_prompts or {}).values()) else None
        by = partial(encode_shared, self.model, encode, batch_size=size)
        return self._texts.encode(texts, by, kind=(task, prompt_type))


def model_meta(model: SentenceTransformer, name: str) -> ModelMeta:
    """Return MTEB's record of a model, its revision the hash of what decides the embeddings."""
    with quietly():
        meta = ModelMeta.from_sentence_transformer_model(model)
    # MTEB wants an organisation on the Hub before the slash.
    return meta.model_copy(
        update={
            "name": name if "/" in name else f"local/{name}",
            "revision": embedding_sha256(model),
        }
    )


def register(
    folder: str | Path, *, pooling: PoolingName | None = None, trust_remote_code: bool = False
) -> ModelMeta:
    """Make a local model known to MTEB, so that ``mteb.get_model`` and ``mteb.evaluate`` take it.

    The name in MTEB's record is ``local/FOLDER-HASH``, so folders of one name do not hide each
    other; `pooling` is that of a plain encoder. Raises UserError where the model cannot be loaded.

    Example:
        ::

            import mteb
            from st_jtcse.evaluation.mteb_models import register

            meta = register("path/to/encoder_1", pooling="cls")
            model = mteb.get_model(meta.name)  # and: mteb.evaluate(meta, mteb.get_tasks(["STS12"]))
    """
    path = Path(folder).resolve()
    options: dict[str, Any] = {"pooling": pooling, "trust_remote_code": trust_remote_code}
    meta = model_meta(load_sentence_transformer(str(path), **options), path.name)
    own = {"name": f"{meta.name}-{str(meta.revision)[:8]}", "loader": _load_registered}
    meta = meta.model_copy(update=own | {"loader_kwargs": {"folder": str(path), **options}})
    MODEL_REGISTRY[str(meta.name)] = meta
    return meta


def _load_registered(name: str, revision: str, *, folder: str, **options: Any) -> UniqueTextEncoder:
    encoder = UniqueTextEncoder(load_sentence_transformer(folder, **options), name)
    if encoder.mteb_model_meta.revision != revision:
        raise UserError(
            f"{folder} has changed since it was registered as {name}; register it again."
        )
    return encoder
