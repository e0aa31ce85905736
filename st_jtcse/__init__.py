"""Twin-tower contrastive sentence embeddings for Sentence-Transformers.

Importing the package registers the twin and the ensemble encoder with transformers, so that
``SentenceTransformer(path)`` loads a saved one without ``trust_remote_code``.
"""

from __future__ import annotations

from importlib.metadata import version

from transformers import AutoConfig, AutoModel

from st_jtcse.towers import EnsembleEncoderConfig, EnsembleEncoderModel, TwinEncoderConfig, TwinEncoderModel

__version__ = version("st-jtcse")

for _config, _model in ((TwinEncoderConfig, TwinEncoderModel), (EnsembleEncoderConfig, EnsembleEncoderModel)):
    AutoConfig.register(_config.model_type, _config, exist_ok=True)
    AutoModel.register(_config, _model, exist_ok=True)

__all__ = ["EnsembleEncoderConfig", "EnsembleEncoderModel", "TwinEncoderConfig", "TwinEncoderModel", "__version__"]
