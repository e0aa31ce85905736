"""The hash of all that decides a model's embeddings."""

from __future__ import annotations

import hashlib
import json
from typing import Any

from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import Module
from transformers import PreTrainedModel

from st_jtcse.hashing import weights_sha256

# Part of a configuration that says where and by what a model was saved, not what it computes.
_CIRCUMSTANCES = ("_name_or_path", "transformers_version", "architectures", "auto_map")


def embedding_sha256(model: SentenceTransformer) -> str:
    """Return the SHA-256 of all that decides a model's embeddings: weights, pooling and other settings, tokenizers.

    Two models with the same weights and another pooling are two models.
    """
    settings: list[Any] = []
    for module in model.modules():
        # The model itself, and whole models that are its members.
        if isinstance(module, SentenceTransformer):
            settings += [module.prompts, module.default_prompt_name, module.truncate_dim]
            settings += [module.similarity_fn_name, module.max_seq_length]
        elif isinstance(module, PreTrainedModel):
            config = module.config.to_diff_dict()
            settings.append({key: value for key, value in config.items() if key not in _CIRCUMSTANCES})
        elif isinstance(module, Module):
            settings.append([type(module).__name__, module.get_config_dict()])
            settings.append(_tokenizer_state(getattr(module, "tokenizer", None)))
    digest = hashlib.sha256(weights_sha256(model).encode())
    digest.update(json.dumps(settings, sort_keys=True, default=str).encode())
    return digest.hexdigest()


def _tokenizer_state(tokenizer: Any) -> Any:
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if backend is None:
        return tokenizer.get_vocab() if hasattr(tokenizer, "get_vocab") else None
    # Encoding sets truncation and padding anew each time.
    state = json.loads(backend.to_str())
    return {key: value for key, value in state.items() if key not in ("truncation", "padding")}
