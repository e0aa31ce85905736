"""A base on the Hub that was saved with attention pooling: training goes on with what it learned."""

import numpy as np
import pytest
import torch
from conftest import make_model, make_sentences, save_encoder
from huggingface_hub import HfApi
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import Transformer

from st_jtcse.modules import AttentionPooling
from st_jtcse.recipe.schema import ModelSpec
from st_jtcse.training.models import build_model

SENTENCES = make_sentences(4)


@pytest.fixture
def api(hub, monkeypatch):
    monkeypatch.setenv("HF_TOKEN", hub.read_token)
    return HfApi(endpoint=hub.endpoint, token=hub.write_token)


def push(api, model, folder):
    model.save_pretrained(str(folder), create_model_card=False)
    api.create_repo("org/base", private=True, exist_ok=True)
    return api.upload_folder(repo_id="org/base", folder_path=folder).oid


def embeddings(**changes):
    spec = ModelSpec.model_validate({"base": "org/base", "pooling": "attention", **changes})
    return build_model(spec, lambda name: name, with_head=False, seed=1).encode(SENTENCES)


def test_the_attention_that_a_base_on_the_hub_learned_is_gone_on_with(api, tmp_path):
    encoder = Transformer(str(save_encoder(tmp_path / "encoder", 1)))
    model = SentenceTransformer(
        modules=[encoder, AttentionPooling(encoder.get_embedding_dimension())], device="cpu"
    )
    expected, revisions = [], []
    for seed in (1, 2):
        torch.manual_seed(seed)
        torch.nn.init.normal_(model[1].context.weight)
        expected.append(model.encode(SENTENCES))
        revisions.append(push(api, model, tmp_path / "model"))
    assert np.abs(expected[0] - expected[1]).max() > 1e-3
    np.testing.assert_allclose(embeddings(), expected[1], atol=1e-6)
    np.testing.assert_allclose(embeddings(revision=revisions[0]), expected[0], atol=1e-6)


def test_a_base_on_the_hub_without_attention_begins_as_the_mean(api, tmp_path):
    model = make_model(save_encoder(tmp_path / "encoder", 1), "mean")
    push(api, model, tmp_path / "model")
    np.testing.assert_allclose(embeddings(), model.encode(SENTENCES), atol=1e-6)
