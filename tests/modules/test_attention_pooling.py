"""Attention pooling against its equation in float64, its gradients, its beginning and its saved
form.
"""

import numpy as np
import torch
from conftest import make_encoder, make_sentences, save_encoder
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import Transformer
from sentence_transformers.sentence_transformer.modules import Pooling

from st_jtcse.modules import AttentionPooling


def drawn(size=6):
    torch.manual_seed(0)
    pooling = AttentionPooling(size).double()
    torch.nn.init.normal_(pooling.context.weight)
    return pooling


def tokens_and_mask():
    torch.manual_seed(1)
    return torch.randn(2, 4, 6, dtype=torch.float64), torch.tensor([[1, 1, 1, 1], [1, 1, 0, 0]])


def test_it_is_the_equation_and_padding_has_no_weight():
    pooling, (tokens, mask) = drawn(), tokens_and_mask()
    found = pooling({"token_embeddings": tokens, "attention_mask": mask})["sentence_embedding"]
    weight, bias = (
        value.detach().numpy() for value in (pooling.projection.weight, pooling.projection.bias)
    )
    context = pooling.context.weight.detach().numpy()[0]
    for row, length in enumerate((4, 2)):
        kept = tokens[row, :length].numpy()
        scores = np.exp(np.tanh(kept @ weight.T + bias) @ context)
        # Weights are computed in float32, whatever the model's type.
        np.testing.assert_allclose(
            found[row].detach().numpy(), scores / scores.sum() @ kept, atol=1e-6
        )
    changed = tokens.clone()
    changed[1, 2:] = 1e3
    again = pooling({"token_embeddings": changed, "attention_mask": mask})["sentence_embedding"]
    assert torch.equal(found, again)


def test_it_begins_as_the_mean_and_learns(tmp_path):
    tokens, mask = tokens_and_mask()
    pooling = AttentionPooling(6).double()
    found = pooling({"token_embeddings": tokens, "attention_mask": mask})["sentence_embedding"]
    mean = Pooling(6, "mean")({"token_embeddings": tokens, "attention_mask": mask})[
        "sentence_embedding"
    ]
    torch.testing.assert_close(found, mean, atol=1e-7, rtol=0)
    found.square().sum().backward()
    assert pooling.context.weight.grad.abs().max() > 0


def test_saved_it_is_read_back(tmp_path):
    encoder = Transformer(str(save_encoder(tmp_path / "encoder", 3)))
    size = encoder.get_embedding_dimension()
    assert size == make_encoder(3).config.hidden_size
    model = SentenceTransformer(modules=[encoder, AttentionPooling(size)], device="cpu")
    torch.nn.init.normal_(model[1].context.weight)
    model.save_pretrained(str(tmp_path / "model"), create_model_card=False)
    loaded = SentenceTransformer(str(tmp_path / "model"), trust_remote_code=True, device="cpu")
    sentences = make_sentences(4)
    np.testing.assert_allclose(loaded.encode(sentences), model.encode(sentences), atol=1e-7)
