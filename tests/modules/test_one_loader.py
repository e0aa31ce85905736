"""What a name means: a model is itself, a plain encoder needs its pooling named, a sum has that of
its encoders.
"""

import json
import re
import shutil

import numpy as np
import pytest
import torch
from conftest import make_model, make_pipeline, make_sentences, make_tokenizer, save_encoder
from peft import LoraConfig
from sentence_transformers import CrossEncoder, SentenceTransformer
from sentence_transformers.base.modules import Transformer
from sentence_transformers.sentence_transformer.modules import (
    Dense,
    Normalize,
    Pooling,
    StaticEmbedding,
)

from st_jtcse.errors import PoolingNeeded, UserError
from st_jtcse.evaluation.given_models import load_model as evaluated
from st_jtcse.modules import (
    AttentionPooling,
    PoolerModulusHead,
    TwinCrossAttentionEncoder,
    ensemble_of,
    load_sentence_transformer,
    save_for_inference,
)
from st_jtcse.modules.loading import load_cross_encoder
from st_jtcse.modules.saved_form import saved_form
from st_jtcse.modules.twin_encoder import join_towers
from st_jtcse.recipe.schema import ModelSpec, WeightedModelSpec
from st_jtcse.training.as_shipped import begins_as
from st_jtcse.training.models import build_model, load_frozen

pytestmark = pytest.mark.usefixtures("offline")
SENTENCES = make_sentences(6)


@pytest.fixture(scope="module")
def shipped(tower_folders, tmp_path_factory):
    """A model with prompts, a length and a similarity of its own, and modules behind its mean
    pooling.
    """
    folder = tmp_path_factory.mktemp("shipped") / "model"
    modules = [Transformer(str(tower_folders[0])), Pooling(32, "mean"), Dense(32, 32), Normalize()]
    model = SentenceTransformer(
        modules=modules,
        prompts={"all": "the "},
        default_prompt_name="all",
        similarity_fn_name="dot",
        device="cpu",
    )
    model.max_seq_length = 9
    model.save_pretrained(str(folder), create_model_card=False)
    return folder


@pytest.fixture(scope="module")
def twin(tower_folders, tmp_path_factory):
    folder = tmp_path_factory.mktemp("twin") / "twin"
    save_for_inference(make_pipeline(tower_folders), folder, create_model_card=False)
    return folder


@pytest.fixture(scope="module")
def ensemble(tower_folders, tmp_path_factory):
    folder = tmp_path_factory.mktemp("ensemble") / "ensemble"
    save_for_inference(ensemble_of(tower_folders, pooling="cls"), folder, create_model_card=False)
    return folder


def build(with_head=False, **spec):
    return build_model(ModelSpec.model_validate(spec), str, with_head=with_head, seed=1)


def names(model):
    return [type(module).__name__ for module in model]


def test_a_model_is_itself(shipped):
    expected = SentenceTransformer(str(shipped), device="cpu")
    for model in (
        load_sentence_transformer(shipped, device="cpu"),
        build(base=str(shipped)),
        load_frozen(WeightedModelSpec(model=str(shipped)), str),
    ):
        assert np.array_equal(model.encode(SENTENCES), expected.encode(SENTENCES))
        assert (model.prompts["all"], model.similarity_fn_name, model.max_seq_length) == (
            "the ",
            "dot",
            9,
        )


@pytest.mark.parametrize("pooling", ["cls", "mean", "max", "first_last"])
def test_a_named_pooling_takes_the_encoder_alone(shipped, tower_folders, pooling):
    plain = load_sentence_transformer(tower_folders[0], pooling=pooling, device="cpu").encode(
        SENTENCES
    )
    for model in (
        load_sentence_transformer(shipped, pooling=pooling, max_seq_length=32, device="cpu"),
        build(base=str(shipped), pooling=pooling, max_seq_length=32),
    ):
        assert np.array_equal(model.encode(SENTENCES), plain)


def test_a_plain_encoder_is_refused_by_each_in_its_own_words(tower_folders):
    name = str(tower_folders[0])
    for refused in (lambda: load_sentence_transformer(name), lambda: ensemble_of([name])):
        with pytest.raises(
            PoolingNeeded, match=r"nothing says how .*; name its pooling, e\.g\. pooling='cls'\."
        ):
            refused()
    for refused in (
        lambda: build(base=name),
        lambda: load_frozen(WeightedModelSpec(model=name), str),
    ):
        with pytest.raises(
            UserError,
            match=r"nothing says how .*; name its pooling beside it, e\.g\. 'pooling: cls'",
        ):
            refused()


@pytest.mark.parametrize("kind", ["twin", "ensemble"])
@pytest.mark.parametrize("pooling", ["mean", "first_last"])
def test_a_twin_and_an_ensemble_pool_each_encoder_as_it_is_said(
    kind, pooling, request, tower_folders
):
    folder = str(request.getfixturevalue(kind))
    expected = sum(
        load_sentence_transformer(tower, pooling=pooling).encode(SENTENCES)
        for tower in tower_folders
    )
    for model in (
        load_sentence_transformer(folder, pooling=pooling),
        build(base=folder, pooling=pooling),
        load_frozen(WeightedModelSpec(model=folder, pooling=pooling), str),
    ):
        np.testing.assert_allclose(model.encode(SENTENCES), expected, atol=1e-5)
    found = SentenceTransformer(folder, device="cpu").encode(SENTENCES)
    assert np.array_equal(load_sentence_transformer(folder, pooling="cls").encode(SENTENCES), found)


@pytest.mark.parametrize(
    ("kind", "pooling"), [("twin", "max"), ("twin", "attention"), ("ensemble", "pooler")]
)
def test_what_no_sum_of_encoders_gives_is_refused(kind, pooling, request):
    with pytest.raises(
        UserError, match=f"cannot be pooled by '{pooling}'; use one of cls, mean, first_last"
    ):
        load_sentence_transformer(str(request.getfixturevalue(kind)), pooling=pooling)


def save_shipped(tower, folder, pooling="mean", prompts=None, **options):
    """A tower as people ship it: pooled, normalised, with a prompt."""
    modules = [Transformer(str(tower)), Pooling(32, pooling, **options), Normalize()]
    prompts = {"query": "the man "} if prompts is None else prompts
    model = SentenceTransformer(
        modules=modules, prompts=prompts, default_prompt_name="query", device="cpu"
    )
    model.save_pretrained(str(folder), create_model_card=False)
    return str(folder)


@pytest.mark.parametrize("include_prompt", [True, False])
def test_towers_as_shipped_keep_pooling_normalisation_and_prompts(
    include_prompt, tower_folders, tmp_path
):
    folders = [
        save_shipped(tower, tmp_path / tower.name, include_prompt=include_prompt)
        for tower in tower_folders
    ]
    summed = sum(SentenceTransformer(folder, device="cpu").encode(SENTENCES) for folder in folders)
    # As its towers do, a twin ends with length 1.
    expected = summed / np.linalg.norm(summed, axis=1, keepdims=True)
    twin = build(towers=folders)
    np.testing.assert_allclose(twin.encode(SENTENCES), expected, atol=1e-6)
    save_for_inference(twin, tmp_path / "twin", create_model_card=False)
    saved = SentenceTransformer(str(tmp_path / "twin"), device="cpu")
    assert names(saved) == ["Transformer", "Pooling", "Normalize"]
    np.testing.assert_allclose(saved.encode(SENTENCES), expected, atol=1e-6)
    join_towers(*folders, tmp_path / "joined", pooler_seed=0)
    joined = SentenceTransformer(str(tmp_path / "joined"), device="cpu")
    np.testing.assert_allclose(joined.encode(SENTENCES), expected, atol=1e-6)
    # One encoder, as its members have no prompt that is used by itself.
    members = [SentenceTransformer(folder, device="cpu") for folder in folders]
    for member in members:
        member.default_prompt_name = None
    ensemble = ensemble_of(members)
    assert type(ensemble[0]).__name__ == "EnsembleEncoder"
    np.testing.assert_allclose(ensemble.encode(SENTENCES, prompt="the man "), summed, atol=1e-6)


def test_towers_that_are_not_pooled_alike_are_refused_or_taken_when_it_is_said(
    tower_folders, shipped, tmp_path
):
    plain = str(tower_folders[1])
    folders = {
        kind: save_shipped(tower_folders[0], tmp_path / kind, **options)
        for kind, options in {
            "mean": {},
            "cls": {"pooling": "cls"},
            "asked": {"prompts": {"query": "a "}},
        }.items()
    }
    for other, reason in (
        (plain, r"is a plain encoder, and nothing says how .*; name its pooling beside it"),
        (
            str(shipped),
            r"makes its embedding by Transformer, Pooling, Dense, Normalize, but a tower has",
        ),
        (folders["cls"], r"differ in pooling: 'mean' in the first, 'cls' in the other"),
        (
            folders["asked"],
            r"differ in prompts: {'query': 'the man '} in the first, {'query': 'a '} in the other",
        ),
    ):
        with pytest.raises(UserError, match=reason):
            build(towers=[folders["mean"], other])
    expected = sum(make_model(folder).encode(SENTENCES) for folder in tower_folders)
    found = build(towers=[folders["mean"], plain], pooling="cls")
    np.testing.assert_allclose(found.encode(SENTENCES), expected, atol=1e-5)
    assert type(found[0]) is TwinCrossAttentionEncoder


def test_a_base_as_shipped_takes_heads_layers_and_other_sizes(shipped, twin, model_folders):
    headed = build(base=str(shipped), with_head=True, training_head=True, dropout=0.3)
    assert names(headed) == [
        "Transformer",
        "PoolerModulusHead",
        "Pooling",
        "Dense",
        "Normalize",
        "TrainingHead",
    ]
    assert headed.prompts["all"] == "the " and headed.max_seq_length == 9
    again = build(base=str(twin), with_head=True)
    assert type(again[0]) is TwinCrossAttentionEncoder and type(again[1]) is PoolerModulusHead
    assert np.array_equal(
        again.encode(SENTENCES), SentenceTransformer(str(twin), device="cpu").encode(SENTENCES)
    )
    tower = build(base=str(twin), tower=2)
    np.testing.assert_allclose(
        tower.encode(SENTENCES), make_model(model_folders[1]).encode(SENTENCES), atol=1e-6
    )
    shallow = build(base=str(shipped), layers=[0, 2])
    assert len(shallow[0].model.encoder.layer) == 2 and names(shallow) == names(
        build(base=str(shipped))
    )
    narrow = build(base=str(model_folders[0]), fresh={"hidden_size": 16})
    assert narrow.encode(SENTENCES).shape == (6, 16) and narrow.get_embedding_dimension() == 16
    with pytest.raises(
        UserError, match="The Dense of 'base' does not fit what 'layers' and 'fresh' make"
    ):
        build(base=str(shipped), fresh={"hidden_size": 16})


def test_a_base_without_an_encoder_of_its_own_starts_as_shipped(tower_folders, tmp_path):
    other = save_encoder(tmp_path / "other", 3, words=["dog", "cat"])
    several = ensemble_of([tower_folders[0], other], pooling="cls")
    save_for_inference(several, tmp_path / "several", create_model_card=False)
    # Its class is of this package: nobody has to trust the folder for it.
    for trust_remote_code in (False, True):
        model = build(base=str(tmp_path / "several"), trust_remote_code=trust_remote_code)
        np.testing.assert_allclose(model.encode(SENTENCES), several.encode(SENTENCES), atol=1e-6)
    with pytest.raises(
        UserError, match="needs an encoder with a pooler, found MultiTokenizerEnsemble without one"
    ):
        build(base=str(tmp_path / "several"), with_head=True)


def test_static_embeddings_have_no_tokens_to_pool(tmp_path):
    table = StaticEmbedding(make_tokenizer().backend_tokenizer, embedding_dim=8)
    SentenceTransformer(modules=[table], device="cpu").save_pretrained(
        str(tmp_path / "table"), create_model_card=False
    )
    assert build(base=str(tmp_path / "table")).encode(SENTENCES).shape == (6, 8)
    with pytest.raises(UserError, match="table begins with StaticEmbedding and has no encoder"):
        build(base=str(tmp_path / "table"), pooling="cls")


def test_learned_attention_is_gone_on_with_named_or_not(tower_folders, tmp_path):
    model = SentenceTransformer(
        modules=[Transformer(str(tower_folders[0])), AttentionPooling(32)], device="cpu"
    )
    model[1].context.weight.data.normal_()
    model.save_pretrained(str(tmp_path / "model"), create_model_card=False)
    for spec in ({"pooling": "attention"}, {"trust_remote_code": True}):
        found = build(base=str(tmp_path / "model"), **spec)
        np.testing.assert_allclose(found.encode(SENTENCES), model.encode(SENTENCES), atol=1e-6)


@pytest.fixture(scope="module")
def cross(tower_folders, tmp_path_factory):
    """A folder that Sentence-Transformers would make an embedder of, by mean pooling."""
    folder = tmp_path_factory.mktemp("cross") / "cross"
    torch.manual_seed(0)
    model = CrossEncoder(str(tower_folders[0]), num_labels=1, device="cpu")
    model.save_pretrained(str(folder), create_model_card=False)
    return folder


def test_a_cross_encoder_says_nothing_of_embeddings(cross, shipped, tower_folders, tmp_path):
    told = f"{cross} was saved as a CrossEncoder, and nothing says how its tokens make an embedding"
    for refused in (
        lambda: load_sentence_transformer(cross),
        lambda: ensemble_of([cross]),
        lambda: load_frozen(WeightedModelSpec(model=str(cross)), str),
        lambda: build(base=str(cross)),
        lambda: build(towers=[str(cross)] * 2),
        lambda: build(towers=[str(shipped), str(cross)]),
        lambda: join_towers(cross, cross, tmp_path / "joined"),
        lambda: evaluated(str(cross)),
    ):
        with pytest.raises(UserError, match=re.escape(told)):
            refused()
    assert saved_form(cross) is None and not (tmp_path / "joined").exists()
    with pytest.raises(UserError, match="or train it as 'cross_encoder' if it shall score pairs"):
        build(base=str(cross))
    # Its encoder has states as any other.
    found = load_sentence_transformer(cross, pooling="mean", device="cpu").encode(SENTENCES)
    expected = make_model(tower_folders[0], "mean").encode(SENTENCES)
    np.testing.assert_allclose(found, expected, atol=1e-6)
    assert build(base=str(cross), pooling="mean").encode(SENTENCES).shape == (6, 32)
    assert load_cross_encoder(cross).predict([("a dog", "a cat")]).shape == (1,)
    assert begins_as(ModelSpec(base=str(cross), pooling="cls")) == (
        "cross: CLS state (pooling: cls), a CrossEncoder by its encoder"
    )


def test_other_kinds_are_no_embedders_either(shipped, tmp_path):
    folder = shutil.copytree(shipped, tmp_path / "sparse")
    settings = json.loads((folder / "config_sentence_transformers.json").read_text())
    (folder / "config_sentence_transformers.json").write_text(
        json.dumps(settings | {"model_type": "SparseEncoder"})
    )
    with pytest.raises(PoolingNeeded, match="was saved as a SparseEncoder"):
        load_sentence_transformer(folder)


@pytest.mark.parametrize(
    ("fresh", "told"),
    [
        ({"num_attention_heads": 5}, "can be built with what 'fresh' changes \\(The hidden size"),
        ({"hidden_size": -4}, "can be built with what 'fresh' changes \\(Trying to create"),
        ({"num_hidden_layers": 10**6}, "fresh.num_hidden_layers: expected at most 1000"),
        ({"rooms": 2}, "'fresh' changes rooms, which the configuration"),
    ],
)
def test_a_fresh_model_that_cannot_be_is_told_as_the_recipes(tower_folders, fresh, told):
    with pytest.raises(UserError, match=told) as refusal:
        build(base=str(tower_folders[0]), pooling="cls", fresh=fresh)
    assert "\n" not in str(refusal.value)


def test_an_adapter_is_taken_with_and_without_its_pooling(shipped, tmp_path):
    base = shutil.copytree(shipped, tmp_path / "base")
    model = SentenceTransformer(str(base), device="cpu")
    model.add_adapter(LoraConfig(r=2, target_modules=["query"], init_lora_weights=False))
    model.save_pretrained(str(tmp_path / "adapter"), create_model_card=False)
    expected = model.encode(SENTENCES)
    found = build(base=str(tmp_path / "adapter")).encode(SENTENCES)
    np.testing.assert_allclose(found, expected, atol=1e-6)
    pooled = build(base=str(tmp_path / "adapter"), pooling="mean")
    assert names(pooled) == ["Transformer", "Pooling"]
    config = json.loads((base / "config.json").read_text())
    (base / "config.json").write_text(json.dumps(config | {"num_hidden_layers": 999}))
    with pytest.raises(UserError, match=r"base: config\.json asks for far more weights"):
        build(base=str(tmp_path / "adapter"))


def test_what_the_libraries_cannot_read_is_told_in_one_sentence(model_folders, tmp_path):
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "no such type"}))
    (tmp_path / "model.safetensors").write_bytes(b"no weights")
    for name in (tmp_path, "nobody/nothing"):
        with pytest.raises(UserError, match=r"The model '.*' cannot be loaded") as refusal:
            load_sentence_transformer(name, pooling="cls")
        assert len(refusal.value.faults) == 1 and "\n" not in str(refusal.value)
