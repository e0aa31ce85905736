"""Recipes that cannot be read, say something unknown, or say what does not go together; and
`--set`.
"""

from inputs.row import Row

HEAD = "name: x\noutput_dir: out\ndata: {train: '{corpus}'}\n"
STAGES = "stages:\n  - name: one\n    model: {base: '{model}'}\n    loss: {type: SimCSELoss}\n"


def read(name, text, sentence):
    """A recipe file as it is."""
    return Row(name, "st-train r.yaml", sentence, files={"r.yaml": text})


def holding(name, line, sentence):
    """A sound recipe with one line more, which is its fourth."""
    return read(name, f"{HEAD}{line}\n{STAGES}", sentence)


def staged(name, old, new, sentence):
    """A sound recipe with something else in its stage."""
    assert old in STAGES
    return read(name, HEAD + STAGES.replace(old, new), sentence)


def overridden(name, value, sentence):
    """The sound recipe under a --set."""
    return Row(name, f"st-train {{recipe}} --output-dir out --set '{value}'", sentence)


ROWS = [
    Row(
        "no recipe",
        "st-train",
        "Name a recipe: a YAML file, or one of those that st-train --list shows.",
    ),
    Row("an unknown recipe", "st-train quickstrat", "Did you mean 'quickstart'?"),
    Row(
        "a recipe that is not there",
        "st-train none.yaml",
        "none.yaml: expected a recipe file, found none.",
    ),
    Row(
        "a folder as recipe",
        "st-train folder/",
        "found a folder. Name a file in it.",
        files={"folder/a.txt": "a"},
    ),
    read("an empty recipe", "", "r.yaml: expected a recipe, found an empty file."),
    read("a recipe of comments", "# nothing\n", "r.yaml: expected a recipe, found an empty file."),
    read("a recipe in UTF-16", "name: x\n".encode("utf-16"), "found binary data or UTF-16"),
    read(
        "a recipe in Latin-1",
        "name: x\ndescription: café\n".encode("latin-1"),
        "r.yaml:2: expected UTF-8 text",
    ),
    read("weights as recipe", b"\0\1\2" * 1000, "found binary data"),
    read(
        "a recipe of a megabyte",
        "#" * (1 << 20) + "\n",
        "expected a recipe of at most 1048576 bytes",
    ),
    read("a list as recipe", "- a\n", "r.yaml:1: expected a mapping"),
    read(
        "a single word as recipe",
        "recipe\n",
        "expected a mapping ('name: ...', 'stages: ...') at the top level",
    ),
    read("a recipe that is no YAML", "name: [x\n", "r.yaml:2: expected valid YAML"),
    read("a tab in a recipe", "name: x\nargs:\n\tseed: 1\n", "r.yaml:3: expected valid YAML"),
    read("a control character in a recipe", "name: \x07\n", "the character U+0007 is not allowed"),
    read("a recipe nested 200,000 deep", "[" * 200_000, "expected at most 32 levels"),
    read(
        "a key twice",
        "name: x\nname: y\n",
        "r.yaml:2 name: expected each key once, found it again (first on line 1)",
    ),
    read("an alias", "name: &a x\ndescription: *a\n", "found the anchor '&a'. Remove it."),
    read(
        "a tag that makes objects",
        "name: !!python/object:os.system x\n",
        "expected plain values, found the tag",
    ),
    read(
        "two documents",
        "name: x\n---\nname: y\n",
        "r.yaml:2: expected one YAML document, found a second.",
    ),
    read(
        "a number as key",
        "1: x\n",
        "r.yaml:1: expected text as a key, found 1. Write '1' in quotes.",
    ),
    read(
        "an integer of 5,000 digits",
        f"seed: {'1' * 5000}\n",
        "r.yaml:1 seed: expected a YAML int, found '1111",
    ),
    read("no stages", HEAD, "stages: expected a value, found none. Add it"),
    read("an empty list of stages", HEAD + "stages: []\n", "stages: expected a list of at least 1"),
    read(
        "no name",
        HEAD.replace("name: x\n", "") + STAGES,
        "name: expected a value, found none. Add it",
    ),
    holding(
        "an unknown key",
        "seeed: 3",
        "r.yaml:4 seeed: expected a known key, found 'seeed'. Did you mean 'seed'?",
    ),
    holding(
        "a number in quotes",
        "seed: '3'",
        "r.yaml:4 seed: expected a whole number, found '3'. Remove the quotes.",
    ),
    holding(
        "a fraction as seed", "seed: 1.5", "r.yaml:4 seed: expected a whole number, found 1.5."
    ),
    holding(
        "a negative seed", "seed: -1", "r.yaml:4 seed: expected a number of at least 0, found -1."
    ),
    holding(
        "a word for a mapping", "args: fast", "r.yaml:4 args: expected a mapping, found 'fast'."
    ),
    holding(
        "a training argument misspelt", "args: {learning_rat: 1}", "Did you mean 'learning_rate'?"
    ),
    holding("text for a number", "args: {max_steps: many}", "r.yaml:4 args.max_steps"),
    holding("an unknown scheduler", "args: {lr_scheduler_type: lineer}", "Did you mean 'linear'?"),
    holding("an unknown optimizer", "args: {optim: adamv}", "r.yaml:4 args.optim"),
    holding(
        "scores the wrong way round",
        "evaluate: {score_range: [5, 0]}",
        "expected the lower score first",
    ),
    holding(
        "a source without an origin",
        "evaluate: {dev: {limit: 2}}",
        "expected exactly one of 'file' and 'dataset'",
    ),
    holding("a file with a split", "evaluate: {dev: {file: a.csv, split: dev}}", "Remove 'split'."),
    holding("a push to no stage", "push: {repos: {three: me/x}}", "r.yaml:4 push.repos"),
    holding(
        "a recipe that extends itself",
        "extends: r.yaml",
        "found itself. Name another, or remove 'extends'.",
    ),
    holding(
        "a recipe that extends none",
        "extends: quickstrat",
        "r.yaml:4 extends: expected the name of a bundled recipe",
    ),
    holding(
        "a sweep of an unknown key",
        "sweep: [{args.learning_rat: [1]}]",
        "Did you mean 'learning_rate'?",
    ),
    holding("a seed twice", "seeds: [1, 1]", "r.yaml"),
    staged("an unknown loss", "SimCSELoss", "SimCSELos", "Did you mean 'SimCSELoss'?"),
    staged(
        "an unknown argument of a loss",
        "SimCSELoss}",
        "SimCSELoss, temprature: 1}",
        "Did you mean 'temperature'?",
    ),
    staged(
        "a temperature of 0", "SimCSELoss}", "SimCSELoss, temperature: 0}", "temperature: expected"
    ),
    staged(
        "a temperature that is text",
        "SimCSELoss}",
        "SimCSELoss, temperature: hot}",
        "temperature: expected a number",
    ),
    staged("an unknown pooling", "'{model}'", "'{model}', pooling: men", "Did you mean 'mean'?"),
    staged(
        "a model without an origin",
        "{base: '{model}'}",
        "{pooling: cls}",
        "expected exactly one of 'base', 'towers'",
    ),
    staged(
        "two origins of a model",
        "{base: '{model}'}",
        "{base: a, towers: [a, b]}",
        "found 'base' and 'towers'",
    ),
    staged(
        "a stage's name that is a path", "name: one", "name: ../one", "expected letters, digits"
    ),
    staged("a later stage's model", "'{model}'", "stage:two", "stages[0].model.base: expected"),
    staged("a stage's own model", "'{model}'", "stage:one", "stages[0].model.base: expected"),
    staged("a list for a model", "{base: '{model}'}", "[a]", "stages[0].model: expected a mapping"),
    staged(
        "an adapter where nothing is trained",
        "'{model}'}\n    loss: {type: SimCSELoss}",
        "'{model}', lora: {r: 8}}\n    loss: null",
        "r.yaml:5 stages[0]: expected a loss beside 'model.lora', found null.",
    ),
    staged(
        "a stage twice",
        STAGES,
        STAGES + STAGES.removeprefix("stages:\n"),
        "stages[1].name: expected",
    ),
    overridden("an override without a value", "seed", "--set: expected KEY=VALUE, found 'seed'."),
    overridden("an override without a key", "=1", "--set: expected KEY=VALUE, found '=1'."),
    overridden("an override of an unknown key", "seeed=1", "--set seeed: expected a known key"),
    overridden("an override that is no YAML", "seed=[1", "--set seed: expected valid YAML"),
    overridden(
        "an override of no stage",
        "stages.three.name=x",
        "--set stages.three.name: expected the name or position",
    ),
    overridden(
        "an override beyond the list",
        "stages.9.name=x",
        "--set stages.9.name: expected the name or position",
    ),
    overridden(
        "an override below a number", "seed.a=1", "--set seed.a: expected keys below seed, found 1."
    ),
    overridden(
        "an override of the wrong type",
        "seed=fast",
        "--set seed: expected a whole number, found 'fast'.",
    ),
    overridden("an override with an alias", "args=*a", "--set args"),
    overridden(
        "too few sentences to choose by",
        "evaluate={dev: unlabelled}",
        "and 'dev: unlabelled' needs 100; add",
    ),
    overridden(
        "a limit of held-out sentences",
        "evaluate={dev: {unlabelled: true, limit: 3}}",
        "expected no 'limit' beside 'unlabelled', found one.",
    ),
    overridden(
        "a bound without sets",
        "evaluate={retention: 0.3}",
        "expected 'general' beside 'retention', found none.",
    ),
    overridden(
        "a bound below zero",
        "evaluate={general: {a: p.jsonl}, retention: -1}",
        "evaluate.retention: expected",
    ),
    Row(
        "an unknown stage",
        "st-train {recipe} --output-dir out --stage tow",
        "--stage: 'tow' is not a stage of the recipe",
    ),
    Row(
        "a stage whose model is not there yet",
        "st-train {recipe} --output-dir out --stage two",
        "--stage: 'two' starts from stage:one, which is not finished in",
    ),
]


def ranged(argument, value, told):
    """A training argument out of its range."""
    line = f"args: {{{argument}: {value}}}"
    return holding(
        f"{argument} of {value}",
        line,
        f"r.yaml:4 args.{argument}: expected a {told}, found {value.lstrip('.')}",
    )


ROWS += [
    ranged(*row)
    for row in (
        ("per_device_train_batch_size", "0", "number of at least 1"),
        ("per_device_train_batch_size", "-8", "number of at least 1"),
        ("gradient_accumulation_steps", "-1", "number of at least 1"),
        ("max_steps", "0", "number of at least 1"),
        ("max_steps", "-5", "number of at least 1"),
        ("num_train_epochs", "0", "number above 0"),
        ("num_train_epochs", "-1.5", "number above 0"),
        ("learning_rate", ".nan", "finite number"),
        ("learning_rate", "-1", "number of at least 0"),
        ("adam_epsilon", "-1", "number of at least 0"),
        ("weight_decay", "-0.01", "number of at least 0"),
        ("dataloader_num_workers", "-1", "number of at least 0"),
        ("logging_steps", "0", "number above 0"),
        ("warmup_ratio", "1.5", "number of at most 1"),
    )
]
ROWS += [
    holding(
        "an unknown key of accelerator_config",
        "args: {accelerator_config: {split: true}}",
        "Stage 'one': args do not fit together: AcceleratorConfig.__init__() got an unexpected "
        "keyword argument",
    ),
]
ROWS += [
    holding(
        f"a test set called {name!r}",
        f"evaluate: {{test: {{{name!r}: '{{pairs}}'}}}}",
        "('dev', 'train', 'anchors', 'known_items', 'neighbourhoods' and 'pair_scores' are taken), "
        f"found {name!r}. Choose another.",
    )
    for name in ("dev", "train", "pair_scores", "anchors", "", " ")
]
