"""A model is loaded whole or refused in one sentence that names what is wrong with it; what is well
formed passes.
"""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from conftest import (
    make_encoder,
    make_model,
    make_pipeline,
    make_sentences,
    make_tokenizer,
    save_encoder,
    save_language_model,
)
from safetensors.torch import load_file, save_file
from sentence_transformers import CrossEncoder, SentenceTransformer
from sentence_transformers.base.modules import Transformer
from sentence_transformers.sentence_transformer.modules import Dense, Pooling
from transformers import BertConfig, BertForMaskedLM, PreTrainedModel, RobertaConfig, RobertaModel

import st_jtcse
from st_jtcse.data.frozen_generator import FrozenGenerator
from st_jtcse.errors import UserError
from st_jtcse.modules import (
    MultiTokenizerEnsemble,
    TwinCrossAttentionEncoder,
    ensemble_of,
    load_sentence_transformer,
    save_for_inference,
)
from st_jtcse.modules.loading import load_cross_encoder
from st_jtcse.modules.whole_models import is_unreadable

ASSETS = Path(__file__).parents[1] / "assets"
TEXTS = make_sentences(4)


@pytest.fixture(scope="module")
def saved(tower_folders, tmp_path_factory):
    """One saved model of each family."""
    root = tmp_path_factory.mktemp("saved")
    encoder = Transformer(str(tower_folders[0]))
    dense = SentenceTransformer(modules=[encoder, Pooling(32, "mean"), Dense(32, 32)], device="cpu")
    dense.save_pretrained(str(root / "plain"), create_model_card=False)
    save_for_inference(make_pipeline(tower_folders), root / "twin", create_model_card=False)
    save_for_inference(
        ensemble_of(tower_folders, pooling="cls"), root / "ensemble", create_model_card=False
    )
    members = [make_model(folder, "mean") for folder in tower_folders]
    several = SentenceTransformer(modules=[MultiTokenizerEnsemble(members)], device="cpu")
    save_for_inference(several, root / "several", create_model_card=False)
    torch.manual_seed(0)
    CrossEncoder(str(tower_folders[0]), num_labels=1, device="cpu").save_pretrained(
        str(root / "cross")
    )
    return root


def read(folder):
    return json.loads((folder / "config.json").read_text())


def change(**values):
    def edit(folder):
        settings = read(folder)
        for keys, value in values.items():
            *outer, last = keys.split("__")
            place = settings
            for key in outer:
                place = place[key]
            place[last] = value
        (folder / "config.json").write_text(json.dumps(settings))

    return edit


def rewrite(edit, name="model.safetensors"):
    def edit_file(folder):
        weights = load_file(folder / name)
        edit(weights)
        save_file(weights, folder / name, metadata={"format": "pt"})

    return edit_file


def without(part):
    def drop(weights):
        for key in [key for key in weights if part in key]:
            del weights[key]

    return rewrite(drop)


def poison(key, value):
    return lambda weights: weights[key].view(-1)[1:2].fill_(value)


def cut(name):
    return lambda folder: (folder / name).write_bytes((folder / name).read_bytes()[:-9])


def write(name, text):
    return lambda folder: (folder / name).write_text(text)


def remove(*names):
    return lambda folder: [(folder / name).unlink() for name in names]


def both(*edits):
    return lambda folder: [edit(folder) for edit in edits]


def lacks(key):
    return f"lacks the weight '{key}"


WORD = "embeddings.word_embeddings.weight"
# The family, what happens to its folder, and what is said.
DAMAGES = {
    "half of the layers": ("plain", change(num_hidden_layers=8), lacks("encoder.layer.4.")),
    "more layers": (
        "plain",
        change(num_hidden_layers=2),
        "holds the weight 'encoder.layer.2.attention",
    ),
    "no layers": (
        "plain",
        change(num_hidden_layers=0),
        "holds the weight 'encoder.layer.0.attention",
    ),
    "one tensor": (
        "plain",
        without("layer.3.output.dense.bias"),
        lacks("encoder.layer.3.output.dense.bias"),
    ),
    "half a pooler": ("plain", without("pooler.dense.bias"), lacks("pooler.dense.bias")),
    "another vocabulary": (
        "plain",
        change(vocab_size=10),
        rf"'{WORD}' in .* has the shape \(44, 32\), and \(10, 32\)",
    ),
    "no number": (
        "plain",
        rewrite(poison(WORD, torch.nan)),
        f"The weight '{WORD}' in .* is not finite",
    ),
    "infinite": (
        "plain",
        rewrite(poison(WORD, torch.inf)),
        f"The weight '{WORD}' in .* is not finite",
    ),
    "no number in a later module": (
        "plain",
        rewrite(poison("linear.weight", torch.nan), "2_Dense/model.safetensors"),
        "The weight 'linear.weight' in .* is not finite",
    ),
    "cut weights": (
        "plain",
        cut("model.safetensors"),
        r"model\.safetensors is damaged or not whole",
    ),
    "cut weights of a later module": (
        "plain",
        cut("2_Dense/model.safetensors"),
        "2_Dense/model.safetensors is damaged",
    ),
    "a pointer of git": (
        "plain",
        write("model.safetensors", "version https://git-lfs"),
        "model.safetensors is damaged",
    ),
    "words for numbers": (
        "plain",
        change(num_hidden_layers="four"),
        "'num_hidden_layers' expected int, got str",
    ),
    "no heads": ("plain", change(num_attention_heads=0), "cannot be loaded"),
    "a list of settings": (
        "plain",
        write("config.json", "[]"),
        r"config\.json is not a JSON object",
    ),
    "cut settings": ("plain", cut("tokenizer_config.json"), r"tokenizer_config\.json is not JSON"),
    "no tokenizer": (
        "plain",
        remove("tokenizer.json", "tokenizer_config.json"),
        "lacks its tokenizer's settings",
    ),
    "no tokenizer's settings": (
        "plain",
        remove("tokenizer_config.json"),
        "lacks its tokenizer's settings",
    ),
    "no words": ("plain", remove("tokenizer.json"), "Can't instantiate a processor, a tokenizer"),
    "cut tokenizer": ("plain", cut("tokenizer.json"), r"tokenizer\.json is not JSON"),
    "another's tokenizer": (
        "plain",
        write("tokenizer.json", '{"version": "1.0", "model": 1}'),
        "cannot be loaded",
    ),
    "no pooling": (
        "plain",
        remove("1_Pooling/config.json"),
        r"1_Pooling/config\.json does not exist, so nothing says",
    ),
    "empty pooling": (
        "plain",
        write("1_Pooling/config.json", "{}"),
        "cannot be loaded .*embedding_dimension",
    ),
    "another's pooling": (
        "plain",
        write("1_Pooling/config.json", '{"embedding_dimension": 16, "pooling_mode": "mean"}'),
        "is for embeddings of size 16, and its encoder's have 32",
    ),
    "other settings of the whole": (
        "plain",
        write("config_sentence_transformers.json", "[]"),
        "is not a JSON object",
    ),
    "pickled weights that are none": (
        "plain",
        both(
            remove("model.safetensors"), write("pytorch_model.bin", "cos\nsystem\n(S'exit 1'\ntR.")
        ),
        "its pickled weights are damaged, or more than weights",
    ),
    "a twin without tower II": ("twin", without("towers.1."), lacks("towers.1.embeddings")),
    "a twin without a pooler": (
        "twin",
        without("towers.0.pooler"),
        lacks("towers.0.pooler.dense.bias"),
    ),
    "a twin of fewer layers": (
        "twin",
        change(tower__num_hidden_layers=2),
        "holds the weight 'towers.0.encoder.layer.2",
    ),
    "a format in words": (
        "twin",
        change(format_version="one"),
        "format_version must be a whole number, found 'one'",
    ),
    "an ensemble without its second": (
        "ensemble",
        without("members.1."),
        lacks("members.1.embeddings"),
    ),
    "an ensemble of fewer": (
        "ensemble",
        lambda folder: change(weights=[1], members=read(folder)["members"][:1])(folder),
        "holds the weight 'members.1.",
    ),
    "weights that are all zero": (
        "ensemble",
        change(weights=[0, 0]),
        "needs finite weights, not all of them zero",
    ),
    "a damaged member": (
        "several",
        cut("member_2/model.safetensors"),
        r"member_2.*model\.safetensors is damaged",
    ),
    "a member that lacks layers": (
        "several",
        lambda folder: change(num_hidden_layers=8)(folder / "member_1"),
        r"member_1 lacks the weight 'encoder\.layer\.4",
    ),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_model_is_refused_in_one_sentence(damage, saved, tmp_path, capfd):
    family, spoil, told = DAMAGES[damage]
    folder = shutil.copytree(saved / family, tmp_path / family)
    load_sentence_transformer(folder, device="cpu")
    spoil(folder)
    capfd.readouterr()
    with pytest.raises(UserError, match=told) as refusal:
        load_sentence_transformer(folder, device="cpu")
    assert str(folder) in str(refusal.value) and "\n" not in str(refusal.value)
    # Neither is there a table of the libraries' beside it.
    assert "LOAD REPORT" not in capfd.readouterr().err


@pytest.mark.parametrize(
    "lost",
    ["classifier.weight", "bert.pooler.dense.weight", "bert.encoder.layer.0.output.dense.bias"],
)
def test_a_cross_encoder_is_loaded_whole_too(lost, saved, tmp_path):
    folder = shutil.copytree(saved / "cross", tmp_path / "cross")
    pairs = [(text, TEXTS[0]) for text in TEXTS]
    expected = CrossEncoder(str(folder), device="cpu").predict(pairs)
    np.testing.assert_array_equal(load_cross_encoder(folder).predict(pairs), expected)
    without(lost)(folder)
    with pytest.raises(UserError, match=lacks(lost)):
        load_cross_encoder(folder)
    with pytest.raises(
        UserError, match=r"'classifier\.bias' in .* has the shape \(1,\), and \(3,\) is asked for"
    ):
        load_cross_encoder(saved / "cross", num_labels=3)


def test_towers_members_and_text_models_are_loaded_whole_too(tower_folders, tmp_path):
    folder = shutil.copytree(tower_folders[1], tmp_path / "tower")
    rewrite(poison(WORD, torch.nan))(folder)
    with pytest.raises(UserError, match="is not finite"):
        TwinCrossAttentionEncoder.from_towers(tower_folders[0], folder)
    wordless = shutil.copytree(tower_folders[1], tmp_path / "wordless")
    remove("tokenizer.json", "tokenizer_config.json")(wordless)
    for join in (
        lambda: TwinCrossAttentionEncoder.from_towers(wordless, tower_folders[1]),
        lambda: load_sentence_transformer(wordless, pooling="cls"),
    ):
        with pytest.raises(
            UserError, match=r"wordless lacks its tokenizer's vocabulary \(tokenizer\.json"
        ):
            join()


@pytest.mark.parametrize(
    "spoil", [cut("model.safetensors"), change(hidden_size=32), change(num_hidden_layers=3)]
)
def test_a_judge_is_loaded_whole_too(spoil, tmp_path):
    folder = save_language_model(tmp_path / "judge", 1)
    FrozenGenerator(str(folder), translates=False, batch_size=1, bf16=False)
    spoil(folder)
    with pytest.raises(UserError) as refusal:
        FrozenGenerator(str(folder), translates=False, batch_size=1, bf16=False)
    assert "\n" not in str(refusal.value) and str(folder) in str(refusal.value)


def masked(folder):
    config = make_encoder(1).config
    torch.manual_seed(1)
    BertForMaskedLM(BertConfig(**config.to_dict())).save_pretrained(folder)
    return make_tokenizer().save_pretrained(folder)


def without_pooler(folder):
    config = make_encoder(1, "roberta").config
    torch.manual_seed(1)
    RobertaModel(RobertaConfig(**config.to_dict()), add_pooling_layer=False).save_pretrained(folder)
    return make_tokenizer().save_pretrained(folder)


def sharded(folder):
    make_encoder(1).save_pretrained(folder, max_shard_size="20KB")
    assert (folder / "model.safetensors.index.json").is_file()
    return make_tokenizer().save_pretrained(folder)


def pickled(folder):
    save_encoder(folder, 1)
    weights = load_file(folder / "model.safetensors")
    # Older ones name their encoder, and hold a buffer that no model has any more.
    old = {f"bert.{key}": weight for key, weight in weights.items()}
    old["bert.embeddings.position_ids"] = torch.arange(40)[None]
    torch.save(old, folder / "pytorch_model.bin")
    (folder / "model.safetensors").unlink()


def in_half(folder):
    make_encoder(1).to(torch.bfloat16).save_pretrained(folder)
    return make_tokenizer().save_pretrained(folder)


@pytest.mark.parametrize("make", [masked, without_pooler, sharded, pickled, in_half])
def test_well_formed_checkpoints_pass(make, tmp_path):
    make(tmp_path / "encoder")
    expected = make_model(tmp_path / "encoder", "mean").encode(TEXTS)
    model = load_sentence_transformer(tmp_path / "encoder", pooling="mean", device="cpu")
    np.testing.assert_array_equal(model.encode(TEXTS), expected)
    save_for_inference(model, tmp_path / "model", create_model_card=False)
    np.testing.assert_array_equal(
        load_sentence_transformer(tmp_path / "model", device="cpu").encode(TEXTS), expected
    )
    assert load_cross_encoder(tmp_path / "encoder", num_labels=1).predict(
        [(TEXTS[0], TEXTS[1])]
    ).shape == (1,)


@pytest.mark.parametrize(
    "folder", sorted(ASSETS.glob("*/*/modules.json")), ids=lambda path: path.parent.name
)
def test_models_of_earlier_versions_pass(folder):
    load = (
        load_cross_encoder if folder.parent.name == "cross_encoder" else load_sentence_transformer
    )
    assert load(folder.parent) is not None


def test_the_bundled_model_passes():
    assert load_sentence_transformer("embedded", device="cpu").encode(TEXTS).shape[0] == len(TEXTS)


def test_what_is_loaded_outside_is_left_to_the_libraries(saved, tmp_path):
    folder = shutil.copytree(saved / "plain", tmp_path / "plain")
    plain = vars(PreTrainedModel)["from_pretrained"]
    change(num_hidden_layers=8)(folder)
    with pytest.raises(UserError):
        load_sentence_transformer(folder, device="cpu")
    assert vars(PreTrainedModel)["from_pretrained"] is plain
    assert len(SentenceTransformer(str(folder), device="cpu")[0].model.encoder.layer) == 8


def test_a_length_without_positions_is_refused_where_it_is_named(tower_folders, tmp_path):
    roberta = save_encoder(tmp_path / "roberta", 1, "roberta")
    for folder, most in ((tower_folders[0], 40), (roberta, 39)):
        # The longest text has a position for each token.
        model = load_sentence_transformer(folder, pooling="cls", max_seq_length=most, device="cpu")
        assert np.isfinite(model.encode(["dog " * 100])).all()
        more = {"max_seq_length": most + 1}
        told = f"of {most + 1} is more than the {most} tokens .*; give {most} or less"
        with pytest.raises(UserError, match=told):
            load_sentence_transformer(folder, pooling="cls", **more)
        with pytest.raises(UserError, match=told):
            ensemble_of([folder], pooling="cls", **more)
        with pytest.raises(UserError, match=told):
            TwinCrossAttentionEncoder.from_towers(folder, folder, **more)


def test_a_length_that_a_model_came_with_ends_with_its_positions(tmp_path):
    roberta = save_encoder(tmp_path / "roberta", 1, "roberta")
    settings = json.loads((roberta / "tokenizer_config.json").read_text())
    (roberta / "tokenizer_config.json").write_text(json.dumps(settings | {"model_max_length": 512}))
    make_model(roberta).save_pretrained(str(tmp_path / "shipped"), create_model_card=False)
    (tmp_path / "shipped" / "sentence_bert_config.json").write_text('{"max_seq_length": 512}')
    twin = TwinCrossAttentionEncoder.from_towers(roberta, roberta)
    for model in (
        load_sentence_transformer(roberta, pooling="cls", device="cpu"),
        load_sentence_transformer(tmp_path / "shipped", device="cpu"),
        ensemble_of([roberta, tmp_path / "shipped"], pooling="cls"),
        SentenceTransformer(modules=[twin, Pooling(32, "cls")], device="cpu"),
    ):
        assert model.max_seq_length == 39 and np.isfinite(model.encode(["dog " * 100])).all()
    assert np.isfinite(load_cross_encoder(roberta).predict([("dog " * 50, "cat " * 50)])).all()


def test_weights_that_cancel_are_refused(tower_folders, tmp_path):
    other = shutil.copytree(tower_folders[0], tmp_path / "the-same")
    for weights, told in (
        ([1, -1], "The weights 1, -1 cancel"),
        ([0, 0], "finite weights, not all of them zero"),
    ):
        for pooling in ("cls", "mean"):
            with pytest.raises(UserError, match=told):
                ensemble_of([tower_folders[0], other], weights, pooling=pooling)
    difference = ensemble_of(tower_folders, [1, -1], pooling="cls").encode(TEXTS)
    assert np.linalg.norm(difference, axis=1).min() > 0.1


def test_defects_and_want_of_memory_are_not_told_as_damaged_files():
    assert not is_unreadable(MemoryError()) and not is_unreadable(torch.OutOfMemoryError())
    for place, expected in (
        ("modules/loading.py", False),
        ("towers/modeling_twin_encoder.py", True),
    ):
        with pytest.raises(TypeError) as raised:
            exec(compile("None + 1", str(Path(st_jtcse.__file__).parent / place), "exec"))
        assert is_unreadable(raised.value) == expected
    with pytest.raises(TypeError) as raised:
        json.loads(1)
    assert is_unreadable(raised.value)
