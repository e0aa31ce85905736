"""Models that are not there, or are none."""

import json
import shutil

import torch
from sentence_transformers import CrossEncoder

from inputs.row import Row

FOLDERS = {"empty/a.txt": "a\n"}


def trained(name, model, sentence, **more):
    """A recipe whose stage starts from it."""
    command = f"st-train {{recipe}} --output-dir out --set stages.one.model.base={model}"
    return Row(name, command, sentence, **more)


ROWS = [
    trained("a folder without a model, to train", "./empty", "empty", files=FOLDERS),
    trained("a model of no Hub, to train", "nobody/nothing", "nobody/nothing"),
    trained("a plain encoder without a pooling, to train", "{first}", "pooling"),
    Row(
        "a folder without a model, to evaluate",
        "st-eval ./empty --task senteval/CR",
        "empty",
        files=FOLDERS,
    ),
    Row("a path that is none, to evaluate", "st-eval ./none --task senteval/CR", "./none"),
    Row(
        "a model of no Hub, to evaluate",
        "st-eval nobody/nothing --task senteval/CR",
        "nobody/nothing",
    ),
    Row(
        "a plain encoder, to evaluate",
        "st-eval {first} --task senteval/CR",
        "add --pooling cls or --pooling mean",
    ),
    Row(
        "a path that is none, to diagnose",
        "st-diagnose ./none --pairs {pairs} --output-dir out",
        "is not a folder",
    ),
    Row(
        "a plain encoder, to diagnose",
        "st-diagnose {first} --pairs {pairs} --output-dir out",
        "add --pooling cls",
    ),
    Row(
        "an encoder that is not there, to join",
        "st-convert join ./none {second} out",
        "st-convert join: ",
    ),
    Row(
        "a folder without an encoder, to join",
        "st-convert join {first} ./empty out",
        "empty",
        files=FOLDERS,
    ),
    Row("a model that is no twin, to split", "st-convert split {model} out", "st-convert split: "),
    Row("a twin that is not there, to split", "st-convert split ./none out", "st-convert split: "),
    Row(
        "a model without weights, to evaluate",
        "st-eval ./a --task senteval/CR",
        "weights",
        files={"a/config.json": '{"model_type": "bert"}'},
    ),
    Row(
        "a plain encoder as scorer",
        "st-score {corpus} --scorer {first} --judge {judge} --output o.jsonl",
        "--scorer: ",
    ),
    Row(
        "no scorer there",
        "st-score {corpus} --scorer ./none --judge {judge} --output o.jsonl",
        "--scorer: ",
    ),
    Row(
        "no judge there",
        "st-score {corpus} --scorer {model} --judge ./none --output o.jsonl",
        "./none",
    ),
    Row("a folder that is not there, to push", "st-push none me/x --dry-run", "none"),
    Row(
        "a folder without a model, to push", "st-push empty me/x --dry-run", "empty", files=FOLDERS
    ),
]


def damaged(change):
    """A copy of the sound model, damaged."""

    def build(path, world):
        shutil.copytree(world["model"], path)
        change(path)

    return build


def cut(name):
    """Leave half of a file."""
    return lambda path: (path / name).write_bytes(
        (path / name).read_bytes()[: (path / name).stat().st_size // 2]
    )


def without(*names):
    """Remove files."""
    return lambda path: [(path / name).unlink() for name in names]


def resized(path):
    """Name another size than the weights have."""
    config = path / "config.json"
    config.write_text(config.read_text().replace('"hidden_size": 32', '"hidden_size": 64'))


def deepened(path):
    """Name more layers than the weights have."""
    config = path / "config.json"
    config.write_text(
        config.read_text().replace('"num_hidden_layers": 4', '"num_hidden_layers": 12')
    )


def listing(text):
    """Write something else into the list of modules."""
    return lambda path: (path / "modules.json").write_text(text)


def changed(file, **values):
    """Write other values into one of its files."""

    def change(path):
        settings = json.loads((path / file).read_text())
        (path / file).write_text(json.dumps(settings | values))

    return change


def taught(path):
    """Teach its tokenizer a word for which there is no vector."""
    settings = json.loads((path / "tokenizer.json").read_text())
    settings["model"]["vocab"]["zebra"] = 44
    (path / "tokenizer.json").write_text(json.dumps(settings))


DAMAGES = {
    "truncated weights": (cut("model.safetensors"), ""),
    "no weights": (without("model.safetensors"), ""),
    "no tokenizer": (without("tokenizer.json", "tokenizer_config.json"), ""),
    "no pooling configuration": (without("1_Pooling/config.json"), ""),
    "another size in the configuration": (resized, ""),
    "more layers than were saved": (deepened, ""),
    "a configuration that is cut off": (cut("config.json"), ""),
    "a listing that is cut off": (cut("modules.json"), ""),
    "heads that do not divide": (
        changed("config.json", num_attention_heads=5),
        "config.json: hidden_size, num_attention_heads: The hidden size (32) is not a multiple",
    ),
    "a million layers": (
        changed("config.json", num_hidden_layers=10**6),
        "config.json: num_hidden_layers: expected at most 1000, found 1000000",
    ),
    "null for settings": (
        lambda path: (path / "config_sentence_transformers.json").write_text("null"),
        "config_sentence_transformers.json is not a JSON object",
    ),
    "a length of nothing": (
        changed("sentence_bert_config.json", max_seq_length=0),
        "spoilt is 0, and 2 tokens of each text are special",
    ),
    "a word without a vector": (taught, "gives 'zebra' the number 44, and the model has vectors"),
    "a listing of numbers": (
        listing('[{"type": 1, "path": 2}]'),
        "modules.json is not a list of modules",
    ),
    "a listing nested 200,000 deep": (
        listing("[" * 200_000),
        "modules.json is not a list of modules",
    ),
}
# Of the other commands, tests/cli/test_given_models.py.
COMMANDS = {
    "evaluate": "st-eval ./spoilt --task senteval/CR",
    "push": "st-push ./spoilt me/x --dry-run",
    "train": "st-train {recipe} --output-dir out --set stages.one.model.base=./spoilt",
}


def scores_pairs(path, world):
    """A cross-encoder, which Sentence-Transformers would take as an embedder."""
    torch.manual_seed(0)
    model = CrossEncoder(str(world["first"]), num_labels=1, device="cpu")
    model.save_pretrained(str(path), create_model_card=False)


CROSS = "was saved as a CrossEncoder, and nothing says how its tokens make an embedding"
ROWS += [
    Row(f"a cross-encoder, to {what}", command, f"{CROSS}; {way_out}", files={"c": scores_pairs})
    for what, command, way_out in (
        ("adapt", "st-train adapt --set model=./c --output-dir out", "name its pooling"),
        ("evaluate", "st-eval ./c --task senteval/CR", "add --pooling cls"),
        ("diagnose", "st-diagnose ./c --pairs {pairs} --output-dir out", "add --pooling cls"),
        ("score by", "st-score {corpus} --scorer ./c --judge {judge} --output o", "add --pooling"),
        ("join", "st-convert join ./c ./c out", "join two plain encoders"),
    )
]
ROWS += [
    Row(f"{name}, to {what}", command, sentence or "spoilt", files={"spoilt": damaged(change)})
    for name, (change, sentence) in DAMAGES.items()
    for what, command in COMMANDS.items()
]
