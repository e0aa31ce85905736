"""Twin-tower contrastive sentence embeddings for Sentence-Transformers.

Importing the package registers the twin encoder with transformers, so that ``SentenceTransformer(path)`` loads a saved
twin without ``trust_remote_code``.
"""

from __future__ import annotations

from importlib.metadata import version

from transformers import AutoConfig, AutoModel

from st_jtcse.towers import TwinEncoderConfig, TwinEncoderModel

__version__ = version("st-jtcse")

AutoConfig.register(TwinEncoderConfig.model_type, TwinEncoderConfig, exist_ok=True)
AutoModel.register(TwinEncoderConfig, TwinEncoderModel, exist_ok=True)

__all__ = ["TwinEncoderConfig", "TwinEncoderModel", "__version__"]
