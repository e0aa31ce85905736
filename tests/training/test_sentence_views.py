"""Backbones without dropout: refused where a loss makes two views, trained once a rate is given."""

import copy
import json
from types import SimpleNamespace

import pytest
import torch
from conftest import make_sentences, make_tokenizer
from datasets import Dataset
from safetensors.torch import load_file
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import StaticEmbedding
from transformers import AutoModel, EuroBertConfig, Gemma3TextConfig, ModernBertConfig, Qwen3Config

from st_jtcse.abilities.dropout import Dropout
from st_jtcse.abilities.sentence_views.equal_views import refuse_equal_views
from st_jtcse.abilities.sentence_views.view_blocks import ViewSpec
from st_jtcse.abilities.sentence_views.view_collator import collator_of
from st_jtcse.cli.train import main
from st_jtcse.errors import UserError
from st_jtcse.losses.views import encode_views
from st_jtcse.modules.dropout_rates import set_dropout
from st_jtcse.recipe.load import load_recipe
from st_jtcse.training.models import build_model

SHAPE = dict(
    vocab_size=64, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=48,
    max_position_embeddings=40, pad_token_id=0, bos_token_id=2, eos_token_id=3,
)  # fmt: skip
HEADS = {"num_key_value_heads": 2, "head_dim": 8}
CONFIGS = {
    "modernbert": ModernBertConfig(**SHAPE, cls_token_id=2, sep_token_id=3),
    "eurobert": EuroBertConfig(**SHAPE, mask_token_id=4),
    "qwen3": Qwen3Config(**SHAPE, **HEADS),
    "gemma3": Gemma3TextConfig(**SHAPE, **HEADS),
}


@pytest.fixture(params=CONFIGS)
def project(request, tmp_path):
    """A recipe on a tiny model of a kind that has no dropout."""
    torch.manual_seed(0)
    AutoModel.from_config(CONFIGS[request.param]).save_pretrained(tmp_path / "base")
    make_tokenizer().save_pretrained(tmp_path / "base")
    (tmp_path / "text.txt").write_text("\n".join(make_sentences(16)) + "\n")
    recipe = {
        "name": "tiny",
        "output_dir": str(tmp_path / "run"),
        "data": {"train": "text.txt"},
        "args": {
            "max_steps": 2,
            "per_device_train_batch_size": 8,
            "use_cpu": True,
            "disable_tqdm": True,
        },
        "stages": [
            {
                "name": "one",
                "model": {"base": "./base", "pooling": "mean"},
                "loss": {"type": "SimCSELoss"},
            }
        ],
    }
    (tmp_path / "recipe.yaml").write_text(json.dumps(recipe))
    return tmp_path


def build(project, *overrides):
    loaded = load_recipe(str(project / "recipe.yaml"), overrides)
    stage = loaded.recipe.stages[0]
    model = build_model(stage.model, lambda name: name, with_head=False, seed=0)
    rate = Dropout().of(stage)
    if rate is not None:
        set_dropout(model, rate)
    return stage, model


def test_equal_views_are_refused_and_a_rate_makes_them_differ(project, capsys):
    recipe = str(project / "recipe.yaml")
    assert main([recipe]) == 2
    told = capsys.readouterr().err
    assert (
        "Stage 'one' would learn nothing: this model's two views of each sentence are equal" in told
    )
    assert "it has no active dropout. Give its model 'dropout: 0.1', or views that differ" in told
    assert not (project / "run" / "one").exists()
    given = ["--set", "stages.one.model.dropout=0.1", "--output-dir", str(project / "second")]
    assert main([recipe, *given]) == 0
    before = load_file(project / "base" / "model.safetensors")
    after = load_file(project / "second" / "one" / "model.safetensors")
    assert any(
        not torch.equal(weight, before[name]) for name, weight in after.items() if name in before
    )
    # The saved model keeps its own rate.
    saved, own = (
        json.loads((project / place / "config.json").read_text())
        for place in ("second/one", "base")
    )
    assert {key: value for key, value in saved.items() if "drop" in key} == {
        key: value for key, value in own.items() if "drop" in key
    }


def test_two_views_differ_without_dropout_on_every_backbone(project):
    stage, model = build(project)
    rows = Dataset.from_dict({"sentence": make_sentences(8)})
    arguments = SimpleNamespace(prompts=None, router_mapping=None)
    for name in ("crop", "delete", "negate", "shuffle", "mask", "token_cutoff", "feature_cutoff"):
        views = [ViewSpec(type="dropout"), ViewSpec(type=name)]
        batch = collator_of(stage, model, views, arguments, 0)(list(rows))
        features = {key.removeprefix("sentence_"): value for key, value in batch.items()}
        view_a, view_b = encode_views(model.train(), features)["sentence_embedding"].chunk(2)
        difference = (view_a - view_b).abs().amax(dim=1)
        # To untrained rotary positions, places matter little.
        assert difference.max() > 1e-6 if name == "shuffle" else difference.min() > 1e-4, name


def test_each_sentence_has_two_views_in_training_and_one_at_inference(project):
    _, model = build(project, "stages.one.model.dropout=0.1")
    features = model.preprocess(make_sentences(4))
    with torch.no_grad():
        view_a, view_b = encode_views(model.train(), features)["sentence_embedding"].chunk(2)
        assert (view_a - view_b).abs().amax(dim=1).min() > 1e-4
        view_a, view_b = encode_views(model.eval(), features)["sentence_embedding"].chunk(2)
        torch.testing.assert_close(view_a, view_b, rtol=0, atol=1e-6)


@pytest.mark.parametrize("project", ["qwen3"], indirect=True)
def test_the_question_changes_neither_the_model_nor_what_is_drawn_next(project):
    stage, model = build(project, "stages.one.model.dropout=0.1")
    weights, state, training = (
        copy.deepcopy(model.state_dict()),
        torch.get_rng_state(),
        model.training,
    )
    refuse_equal_views(stage, model, Dataset.from_dict({"sentence": make_sentences(8)}))
    assert torch.equal(torch.get_rng_state(), state) and model.training == training
    assert all(torch.equal(weight, weights[name]) for name, weight in model.state_dict().items())


@pytest.mark.parametrize("project", ["qwen3"], indirect=True)
def test_a_rate_that_reaches_nothing_is_told_so(project):
    stage, _ = build(project, "stages.one.model.dropout=0.1")
    # A model that was built without the rate stands for one whose code has a constant of its own.
    _, model = build(project)
    with pytest.raises(
        UserError, match=r"its code reads no rate that 'dropout: 0.1' sets\. Take another model, or"
    ):
        refuse_equal_views(stage, model, Dataset.from_dict({"sentence": make_sentences(8)}))


@pytest.mark.parametrize("project", ["qwen3"], indirect=True)
def test_a_model_whose_sentences_are_no_rows_of_tokens_learns_from_views_of_words(project, capsys):
    table = StaticEmbedding(make_tokenizer().backend_tokenizer, embedding_dim=8)
    SentenceTransformer(modules=[table], device="cpu").save_pretrained(
        str(project / "base"), create_model_card=False
    )
    recipe, own = str(project / "recipe.yaml"), ["--set", "stages.one.model.pooling=null", "--set"]
    for said, told in (
        ("seed=42", "would learn nothing: this model's two views of each sentence are equal"),
        (
            "stages.one.views=mask",
            "the view 'mask' changes rows of tokens, which StaticEmbedding does not read",
        ),
    ):
        assert main([recipe, *own, said]) == 2
        assert told in capsys.readouterr().err
    assert main([recipe, *own, "stages.one.views=crop"]) == 0
    assert "from base: as shipped\n" in capsys.readouterr().err
    before, after = (
        load_file(project / place / "model.safetensors") for place in ("base", "run/one")
    )
    assert not torch.equal(before["embedding.weight"], after["embedding.weight"])


@pytest.mark.parametrize("project", ["qwen3"], indirect=True)
def test_a_loss_that_makes_no_views_is_not_asked(project):
    stage, model = build(
        project, "stages.one.loss.type=CoSENTLoss", "stages.one.data.pairs=text.txt"
    )
    refuse_equal_views(stage, model, Dataset.from_dict({"sentence": make_sentences(8)}))
