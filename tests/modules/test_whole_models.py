"""A model is loaded whole or refused in one sentence that names what is wrong with it; what is well
formed passes.
"""

import json
import os
import shutil
import threading
from concurrent.futures import ThreadPoolExecutor
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
from transformers import (
    BertConfig,
    BertForMaskedLM,
    BertModel,
    PreTrainedModel,
    RobertaConfig,
    RobertaModel,
)

import st_jtcse
from st_jtcse.errors import UserError
from st_jtcse.modules import (
    MultiTokenizerEnsemble,
    TwinCrossAttentionEncoder,
    ensemble_of,
    load_sentence_transformer,
    save_for_inference,
)
from st_jtcse.modules.loading import load_cross_encoder
from st_jtcse.modules.whole_models import is_unreadable, loading_whole
from st_jtcse.papers.data.frozen_generator import FrozenGenerator

ASSETS = Path(__file__).parents[1] / "assets"
TEXTS = make_sentences(4)


@pytest.fixture(scope="module")
def saved(tower_folders, tmp_path_factory):
    """One saved model of each family."""
    root = tmp_path_factory.mktemp("saved")
    encoder = Transformer(str(tower_folders[0]))
    dense = SentenceTransformer(modules=[encoder, Pooling(32, "mean"), Dense(32, 32)], device="cpu")
    dense.save_pretrained(str(root / "plain"))
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


def edited(path, **values):
    """Change what a JSON file holds."""
    path.write_text(json.dumps(json.loads(path.read_text()) | values))


def tokenizer(edit):
    def edit_file(folder):
        settings = json.loads((folder / "tokenizer.json").read_text())
        edit(settings)
        (folder / "tokenizer.json").write_text(json.dumps(settings))

    return edit_file


def listing(number, **values):
    def edit_file(folder):
        entries = json.loads((folder / "modules.json").read_text())
        entries[number] |= values
        (folder / "modules.json").write_text(json.dumps(entries))

    return edit_file


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
    "heads that do not divide": (
        "plain",
        change(num_attention_heads=5),
        r"config\.json: hidden_size, num_attention_heads: The hidden size \(32\) is not a multiple",
    ),
    "an unknown activation": ("plain", change(hidden_act="nope"), r"config\.json: hidden_act: "),
    "an unknown attention": (
        "plain",
        change(attn_implementation="nope"),
        r"config\.json: attn_implementation: ",
    ),
    "dropout of 2": (
        "plain",
        change(hidden_dropout_prob=2),
        r"config\.json: hidden_dropout_prob: dropout probability has to be between 0 and 1",
    ),
    "a negative vocabulary": ("plain", change(vocab_size=-1), "negative dimension -1"),
    "a million layers": (
        "plain",
        change(num_hidden_layers=10**6),
        r"config\.json: num_hidden_layers: expected at most 1000, found 1000000",
    ),
    "a million layers in a twin": (
        "twin",
        change(tower__num_hidden_layers=10**6),
        r"config\.json: tower\.num_hidden_layers: expected at most 1000",
    ),
    "more layers than the files hold": (
        "plain",
        change(num_hidden_layers=999),
        r"asks for far more weights than its files of 0\.\d MiB can hold",
    ),
    "a billion words": ("plain", change(vocab_size=10**9), "asks for far more weights"),
    "a billion labels": (
        "plain",
        change(num_labels=10**9),
        r"config\.json: num_labels: expected at most 1000000",
    ),
    "a negative epsilon": ("plain", change(layer_norm_eps=-1.0), "not finite for a short text"),
    "no settings": ("plain", write("config.json", "null"), r"config\.json is not a JSON object"),
    "no modules": ("plain", write("modules.json", "null"), "is not a list of modules"),
    "an empty list of modules": ("plain", write("modules.json", "[]"), "lists no module"),
    "no settings of the whole": (
        "plain",
        write("config_sentence_transformers.json", "null"),
        r"config_sentence_transformers\.json is not a JSON object",
    ),
    "prompts in a list": (
        "plain",
        write("config_sentence_transformers.json", '{"prompts": []}'),
        r"transformers\.json: prompts: expected a mapping, found a list of 0",
    ),
    "a prompt that is a number": (
        "plain",
        write("config_sentence_transformers.json", '{"prompts": {"query": 5}}'),
        r"prompts\.query: expected text or null, found 5",
    ),
    "a default prompt that is none": (
        "plain",
        write("config_sentence_transformers.json", '{"default_prompt_name": "passage"}'),
        "default_prompt_name: expected the name of one of its prompts, found 'passage'",
    ),
    "embeddings cut to nothing": (
        "plain",
        write("config_sentence_transformers.json", '{"truncate_dim": 0}'),
        "truncate_dim: expected a number above 0, found 0",
    ),
    "no room for words": (
        "plain",
        write("sentence_bert_config.json", '{"max_seq_length": 0}'),
        "The max_seq_length of .* is 0, and 2 tokens of each text are special; .* at least 3",
    ),
    "room for special tokens alone": (
        "plain",
        write("sentence_bert_config.json", '{"max_seq_length": 2}'),
        "The max_seq_length of .* is 2",
    ),
    "nothing that is read": (
        "plain",
        write(
            "sentence_bert_config.json",
            '{"modality_config": {}, "module_output_name": "token_embeddings"}',
        ),
        "names nothing that the model reads",
    ),
    "a word beyond the vectors": (
        "plain",
        tokenizer(lambda settings: settings["model"]["vocab"].update(zebra=44)),
        r"gives 'zebra' the number 44, and the model has vectors for 44 words, 0 to 43",
    ),
    "a special token beyond the vectors": (
        "plain",
        tokenizer(
            lambda settings: settings["post_processor"]["special_tokens"]["[CLS]"].update(ids=[99])
        ),
        "index out of range",
    ),
    "no token to pad with": (
        "plain",
        lambda folder: edited(folder / "tokenizer_config.json", pad_token=None),
        "has no padding token, so sentences of different lengths cannot form a batch",
    ),
    "a folder for a file": (
        "plain",
        both(remove("config.json"), lambda folder: (folder / "config.json").mkdir()),
        r"config\.json is a folder, but should be a file",
    ),
    "a link to nowhere": (
        "plain",
        both(
            remove("model.safetensors"),
            lambda folder: (folder / "model.safetensors").symlink_to("/nonexistent"),
        ),
        r"model\.safetensors is a link that leads nowhere",
    ),
    "a pipe that nobody writes into": (
        "plain",
        both(remove("README.md"), lambda folder: os.mkfifo(folder / "README.md")),
        r"README\.md is neither a file nor a folder",
    ),
    "a module outside": (
        "plain",
        listing(1, path="../1_Pooling"),
        r"modules\.json names '\.\./1_Pooling', which is no place in the model's folder",
    ),
    "a module anywhere": ("plain", listing(1, path="/etc"), "names '/etc', which is no place"),
    "half a character": ("plain", listing(1, path="\ud800"), "which is no place"),
    "a module that is none": (
        "plain",
        listing(1, type="sentence_transformers.base.model.torch"),
        r"names sentence_transformers\.base\.model\.torch, which is no module",
    ),
    "two modules of one name": ("plain", listing(1, name="0"), "two modules of one name"),
    "an export alone": (
        "plain",
        both(
            remove("model.safetensors"),
            lambda folder: (folder / "onnx").mkdir(),
            write("onnx/model.onnx", "x"),
        ),
        r"no weights \(model\.safetensors\); onnx/model\.onnx is an export",
    ),
    "an index of shards that are not there": (
        "plain",
        both(
            lambda folder: make_encoder(1).save_pretrained(folder, max_shard_size="20KB"),
            remove("model.safetensors"),
            lambda folder: next(folder.glob("model-00002-of-*")).unlink(),
        ),
        "model-00002-of-",
    ),
    "weights for members that are none": (
        "several",
        lambda folder: edited(folder / "multi_tokenizer_ensemble.json", weights={"a": 1}),
        r"multi_tokenizer_ensemble\.json: weights: expected a number for each member",
    ),
    "a member that is lost": (
        "several",
        lambda folder: shutil.rmtree(folder / "member_1"),
        "lacks member_1, the folder of one of its 2 members",
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


def test_two_threads_load_side_by_side_and_leave_the_library_as_it_was(saved, tmp_path):
    """One begins to load whole models, another as well, and the first ends first: meanwhile what a
    third loads is its own business, and what the second loads is still checked.

    The loads themselves come one after the other: transformers patches torch's initialisation for
    the time of each, and two at the same moment would leave it patched.
    """
    plain = vars(PreTrainedModel)["from_pretrained"]
    folder = shutil.copytree(saved / "plain", tmp_path / "lacks")
    weights = load_file(folder / "model.safetensors")
    weights.pop("encoder.layer.0.output.dense.bias")
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    first_is_in, second_is_in, first_is_out, third_is_done = (threading.Event() for _ in range(4))

    def first():
        with loading_whole():
            first_is_in.set()
            assert second_is_in.wait(60)
        first_is_out.set()

    def second():
        assert first_is_in.wait(60)
        with loading_whole():
            second_is_in.set()
            assert first_is_out.wait(60) and third_is_done.wait(60)
            BertModel.from_pretrained(folder)

    with ThreadPoolExecutor(3) as threads:
        _, two = threads.submit(first), threads.submit(second)
        assert second_is_in.wait(60)
        assert threads.submit(BertModel.from_pretrained, folder).result(60) is not None
        third_is_done.set()
        with pytest.raises(
            UserError, match=r"lacks the weight 'encoder\.layer\.0\.output\.dense\.bias'"
        ):
            two.result(60)
    assert vars(PreTrainedModel)["from_pretrained"] is plain


def test_sentence_transformers_takes_no_report_of_a_load(tower_folders):
    """What would make the replacement needless: a loading argument of Sentence-Transformers for it,
    or the report in what it gives.
    """
    with pytest.raises(AttributeError, match="'tuple' object has no attribute"):
        Transformer(str(tower_folders[0]), model_kwargs={"output_loading_info": True})


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


def test_a_model_is_tried_out_without_a_trace(saved):
    torch.manual_seed(3)
    # What the library itself draws, for weights that the folder may lack.
    SentenceTransformer(str(saved / "plain"), device="cpu")
    expected = torch.rand(1)
    torch.manual_seed(3)
    model = load_sentence_transformer(saved / "plain", device="cpu")
    assert torch.equal(torch.rand(1), expected)
    modes = {name: part.training for name, part in model.named_modules()}
    plain = SentenceTransformer(str(saved / "plain"), device="cpu")
    assert modes == {name: part.training for name, part in plain.named_modules()}
    np.testing.assert_array_equal(model.encode(TEXTS), plain.encode(TEXTS))


def test_what_a_panic_of_rust_tells_is_damage_and_an_interruption_is_not():
    class PanicException(BaseException):
        """What pyo3 makes of a panic."""

    assert is_unreadable(PanicException()) and not is_unreadable(KeyboardInterrupt())


def test_a_folder_of_an_adapter_alone_is_told(tmp_path):
    (tmp_path / "adapter_config.json").write_text("{}")
    with pytest.raises(UserError, match="holds an adapter alone, neither modules"):
        load_sentence_transformer(tmp_path)


def test_defects_and_want_of_memory_are_not_told_as_damaged_files():
    assert not is_unreadable(MemoryError()) and not is_unreadable(torch.OutOfMemoryError())
    for place, expected in (
        ("modules/loading.py", False),
        ("towers/modeling_twin_encoder.py", True),
    ):
        with pytest.raises(TypeError) as raised:
            exec(compile("None + 1", str(Path(st_jtcse.__file__).parent / place), "exec"))
        assert is_unreadable(raised.value) == expected
    # Where a model computes, its configuration is to blame.
    with pytest.raises(TypeError) as raised:
        code = "def forward(): None + 1\nforward()"
        exec(compile(code, str(Path(st_jtcse.__file__).parent / "modules/x.py"), "exec"))
    assert is_unreadable(raised.value)
    with pytest.raises(TypeError) as raised:
        json.loads(1)
    assert is_unreadable(raised.value)
