"""Models that are not there, or are none."""

import shutil

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


DAMAGES = {
    "truncated weights": (cut("model.safetensors"), ""),
    "no weights": (without("model.safetensors"), ""),
    "no tokenizer": (without("tokenizer.json", "tokenizer_config.json"), ""),
    "no pooling configuration": (without("1_Pooling/config.json"), ""),
    "another size in the configuration": (resized, ""),
    "more layers than were saved": (deepened, ""),
    "a configuration that is cut off": (cut("config.json"), ""),
    "a listing that is cut off": (cut("modules.json"), ""),
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
ROWS += [
    Row(f"{name}, to {what}", command, sentence or "spoilt", files={"spoilt": damaged(change)})
    for name, (change, sentence) in DAMAGES.items()
    for what, command in COMMANDS.items()
]
