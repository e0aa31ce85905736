"""Options of Sentence-Transformers' encode on a twin and an ensemble, against plain encode."""

import copy

import numpy as np
import pytest
import torch
from conftest import make_pipeline, make_sentences
from sentence_transformers import SentenceTransformer
from transformers import AutoModel, AutoTokenizer

from st_jtcse.modules import ensemble_of, to_inference

SENTENCES = make_sentences(9)
PROMPT = "the red ball and "
WEIGHTS = {"twin": (1.0, 1.0), "ensemble": (0.3, 0.7)}


@pytest.fixture(scope="module", params=["twin", "ensemble"])
def kind(request):
    return request.param


@pytest.fixture(scope="module")
def shared(kind, tower_folders):
    return to_inference(
        make_pipeline(tower_folders)
        if kind == "twin"
        else ensemble_of(tower_folders, WEIGHTS[kind], pooling="cls")
    )


@pytest.fixture
def encoder(shared):
    return copy.deepcopy(shared)


def test_a_prompt_is_read_before_the_sentence(encoder, tmp_path):
    plain = encoder.encode(SENTENCES)
    expected = encoder.encode([PROMPT + sentence for sentence in SENTENCES])
    assert np.abs(expected - plain).max() > 0.1
    encoder.prompts = {"question": PROMPT, "document": ""}
    np.testing.assert_allclose(
        encoder.encode(SENTENCES, prompt_name="question"), expected, atol=1e-5
    )
    np.testing.assert_allclose(encoder.encode(SENTENCES, prompt=PROMPT), expected, atol=1e-5)
    np.testing.assert_allclose(encoder.encode(SENTENCES, prompt_name="document"), plain, atol=1e-5)
    encoder.default_prompt_name = "question"
    encoder.save_pretrained(str(tmp_path), create_model_card=False)
    loaded = SentenceTransformer(str(tmp_path), device="cpu")
    np.testing.assert_allclose(loaded.encode(SENTENCES), expected, atol=1e-5)
    np.testing.assert_allclose(loaded.encode(SENTENCES, prompt=""), plain, atol=1e-5)


def test_without_its_prompt_the_pooled_row_is_still_cls(encoder):
    expected = encoder.encode([PROMPT + sentence for sentence in SENTENCES])
    encoder.set_pooling_include_prompt(False)
    np.testing.assert_allclose(encoder.encode(SENTENCES, prompt=PROMPT), expected, atol=1e-5)
    np.testing.assert_allclose(
        encoder.encode(SENTENCES), encoder.encode(SENTENCES, prompt=""), atol=1e-5
    )


def test_with_all_rows_a_left_out_prompt_leaves_the_first_row_behind_it(
    encoder, kind, tower_folders
):
    encoder[0].model.config.pooling = "none"
    encoder.set_pooling_include_prompt(False)
    found = encoder.encode(SENTENCES, prompt=PROMPT)
    tokenizer = AutoTokenizer.from_pretrained(tower_folders[0])
    batch = tokenizer(
        [PROMPT + sentence for sentence in SENTENCES], padding=True, return_tensors="pt"
    )
    with torch.no_grad():
        rows = [
            AutoModel.from_pretrained(folder)(**batch).last_hidden_state[:, 5]
            for folder in tower_folders
        ]
    # [CLS] and four words are left out, as Sentence-Transformers does with any encoder.
    expected = sum(weight * row for weight, row in zip(WEIGHTS[kind], rows)).numpy()
    np.testing.assert_allclose(found, expected, atol=1e-5)


def test_processes_encode_as_one_does(encoder):
    encoder.prompts = {"question": PROMPT}
    # Each takes seconds to start, and how several share out is Sentence-Transformers' own.
    pool = encoder.start_multi_process_pool(["cpu"])
    try:
        for options in (
            {},
            {"prompt_name": "question", "truncate_dim": 8, "normalize_embeddings": True},
        ):
            found = encoder.encode(SENTENCES, pool=pool, chunk_size=2, **options)
            np.testing.assert_allclose(found, encoder.encode(SENTENCES, **options), atol=1e-5)
    finally:
        encoder.stop_multi_process_pool(pool)


def test_truncated_embeddings_are_the_first_components(encoder, tmp_path):
    first = encoder.encode(SENTENCES)[:, :8]
    np.testing.assert_array_equal(encoder.encode(SENTENCES, truncate_dim=8), first)
    normalised = encoder.encode(SENTENCES, truncate_dim=8, normalize_embeddings=True)
    np.testing.assert_allclose(
        normalised, first / np.linalg.norm(first, axis=1, keepdims=True), atol=1e-6
    )
    encoder.save_pretrained(str(tmp_path), create_model_card=False)
    loaded = SentenceTransformer(str(tmp_path), truncate_dim=8, device="cpu")
    assert loaded.get_embedding_dimension() == 8
    np.testing.assert_array_equal(loaded.encode(SENTENCES), first)
    assert loaded.similarity(loaded.encode(SENTENCES), loaded.encode(SENTENCES)).shape == (9, 9)
