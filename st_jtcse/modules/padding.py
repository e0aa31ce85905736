"""Whether an encoder can take sentences of several lengths at once."""

from __future__ import annotations

from typing import Any

import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import Transformer
from sentence_transformers.sentence_transformer.modules import Pooling

from st_jtcse.errors import UserError
from st_jtcse.modules.whole_models import check_pads

_SENTENCE = "a sentence"
# Cosine of one sentence's embeddings, alone and padded: rounding leaves it above, in half precision
# too.
_SAME = 0.99


def check_padding(encoder: Transformer, pooling: Pooling) -> None:
    """Refuse an encoder whose embedding of a sentence depends on the longer ones beside it.

    Padding on the left shifts positions where a model counts them from the row's start, as BERT and
    GPT-2 do; padding on the right is behind the last token.

    Raises:
        UserError: It depends on them, or there is no token to pad with.
    """
    tokenizer: Any = encoder.tokenizer
    check_pads(tokenizer)
    model = SentenceTransformer(modules=[encoder, pooling])
    alone = model.encode([_SENTENCE], convert_to_tensor=True, show_progress_bar=False)[0]
    padded = model.encode(
        [_SENTENCE, " ".join([_SENTENCE] * 8)], convert_to_tensor=True, show_progress_bar=False
    )[0]
    if torch.cosine_similarity(alone.float(), padded.float(), dim=0) < _SAME:
        raise UserError(
            f"The last token of a {encoder.model.config.model_type} model depends on its padding, "
            f"which is on the {tokenizer.padding_side}; set tokenizer.padding_side to the other "
            "side, and save the model again."
        )
