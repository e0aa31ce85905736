"""Validation errors become sentences with file, line, key, what was expected and the way out."""

import pytest
from pydantic import ValidationError

from st_jtcse.recipe.faults import Fault, from_pydantic, tell
from st_jtcse.recipe.schema import Recipe
from st_jtcse.recipe.yaml_source import load
from st_jtcse.wording import nearest, shown, unknown

HEAD = "name: x\noutput_dir: out\ndata: {train: a.txt}\n"
STAGES = "stages:\n  - name: one\n    model: {base: embedded}\n    loss: {type: SimCSELoss}\n"


def told(tmp_path, text):
    path = tmp_path / "r.yaml"
    path.write_text(text)
    source = load(path, "r.yaml")
    with pytest.raises(ValidationError) as caught:
        Recipe.model_validate(source.data)
    return tell(source, from_pydantic(caught.value))


def test_a_valid_recipe_has_no_faults(tmp_path):
    path = tmp_path / "r.yaml"
    path.write_text(HEAD + STAGES)
    assert Recipe.model_validate(load(path).data).stages[0].name == "one"


def test_all_faults_are_told_at_once_in_the_order_of_the_file(tmp_path):
    text = (
        HEAD
        + "seeed: 3\nstages:\n  - name: one\n    model: {base: embedded, droput: 0}\n    loss: "
        "{typ: X}\n"
    )
    assert told(tmp_path, text) == [
        "r.yaml:4 seeed: expected a known key, found 'seeed'. Did you mean 'seed'?",
        "r.yaml:7 stages[0].model.droput: expected a known key, found 'droput'. Did you mean "
        "'dropout'?",
        "r.yaml:8 stages[0].loss.type: expected a value, found none. "
        "Add it (Name of a loss of st_jtcse or of Sentence-Transformers).",
    ]


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        (
            "seed: '3'",
            "r.yaml:4 seed: expected a whole number, found '3'. Remove the quotes.",
        ),
        ("seed: 3.0", "r.yaml:4 seed: expected a whole number, found 3.0. Write 3."),
        (
            "seed: -1",
            "r.yaml:4 seed: expected a number of at least 0, found -1. "
            "Correct it (Seed of every random choice in the run).",
        ),
        (
            "seed: true",
            "r.yaml:4 seed: expected a whole number, found true. Correct it (Seed of every random "
            "choice in the run).",
        ),
        (
            "description: [x]",
            "r.yaml:4 description: expected text, found a list of 1. "
            "Correct it (What the run reproduces, in one or two sentences).",
        ),
        (
            "args: 5",
            "r.yaml:4 args: expected a mapping, found 5. Correct it (Training arguments common to "
            "all stages).",
        ),
        (
            "evaluate: {dev: 5}",
            "r.yaml:4 evaluate.dev: expected a file name or a mapping (keys: file, dataset, "
            "config, split, fit_split, "
            "data_files, revision, columns, limit, corpus, queries, unlabelled), found 5. Correct it (Set whose "
            "score chooses the "
            "checkpoint; for graded pairs, the Spearman correlation of their cosines. "
            "'unlabelled': held-out training sentences).",
        ),
        (
            "evaluate: {dev: {fiel: a.csv}}",
            "r.yaml:4 evaluate.dev.fiel: expected a known key, found 'fiel'. Did you mean 'file'?",
        ),
        (
            "evaluate: {dev: {limit: 2}}",
            "r.yaml:4 evaluate.dev: expected exactly one of 'file' and 'dataset', found neither. "
            "Give one of them.",
        ),
        (
            "evaluate: {dev: {file: a.csv, split: dev}}",
            "r.yaml:4 evaluate.dev: expected a 'dataset' beside 'split', found a 'file'. Remove "
            "'split'.",
        ),
        (
            "evaluate: {score_range: [0, '5']}",
            "r.yaml:4 evaluate.score_range[1]: expected a number, found '5'. Remove the quotes.",
        ),
        (
            "evaluate: {test: faq.csv}",
            "r.yaml:4 evaluate.test: expected each set under a name, found 'faq.csv'. Write it as "
            "evaluate.test.NAME=FILE, in a recipe test: {NAME: FILE}.",
        ),
        (
            "evaluate: {general: {file: faq.csv, columns: [a]}}",
            "r.yaml:4 evaluate.general: expected each set under a name, found a mapping. Write it "
            "as evaluate.general.NAME=FILE, in a recipe general: {NAME: FILE}.",
        ),
        (
            "train: my.txt",
            "r.yaml:4 train: expected a known key, found 'train'. Did you mean 'data.train'?",
        ),
        (
            "learning_rate: 1e-5",
            "r.yaml:4 learning_rate: expected a known key, found 'learning_rate'. Did you mean "
            "'args.learning_rate'?",
        ),
        (
            "sed: 1",
            "r.yaml:4 sed: expected a known key, found 'sed'. Did you mean 'seed'?",
        ),
        (
            "evaluate: {score_range: [5, 0]}",
            "r.yaml:4 evaluate: expected the lower score first in 'score_range', found [5, 0]. "
            "Swap them or widen it.",
        ),
    ],
)
def test_faults_of_the_recipe(tmp_path, line, sentence):
    assert told(tmp_path, f"{HEAD}{line}\n{STAGES}") == [sentence]


@pytest.mark.parametrize(
    ("train", "sentence"),
    [
        (
            "{file: a.txt, limit: 0}",
            "r.yaml:3 data.train.limit: expected a number of at least 1, found 0. "
            "Correct it (Keep the first rows only).",
        ),
        (
            "{file: a.txt, columns: {sentence: 1}}",
            "r.yaml:3 data.train.columns: expected columns, as in [question, answer] or {query: "
            "question, relevant: answer}, found a mapping. Correct it.",
        ),
        (
            "{file: a.txt, columns: text}",
            "r.yaml:3 data.train.columns: expected columns, as in [question, answer] or {query: "
            "question, relevant: answer}, found 'text'. Correct it.",
        ),
        (
            "[a.txt, {file: b.txt, colums: [x]}]",
            "r.yaml:3 data.train[1].colums: expected a known key, found 'colums'. Did you mean "
            "'columns'?",
        ),
        (
            "[]",
            "r.yaml:3 data.train: expected a list of at least 1, found a list of 0. "
            "Correct it (Sentences or images: a source, or a list of sources to read one after the "
            "other).",
        ),
        (
            "''",
            "r.yaml:3 data.train.file: expected text that is not empty, found ''. "
            "Correct it (Local text (one sentence per line), JSONL, CSV or Parquet file, or a "
            "folder of "
            "images, in folders by label where there are labels; a relative path starts at the "
            "recipe's folder).",
        ),
        (
            "[a.txt, 5]",
            "r.yaml:3 data.train[1]: expected a file name or a mapping (keys: file, dataset, "
            "config, split, "
            "fit_split, data_files, revision, columns, limit), found 5. "
            "Correct it (Sentences or images: a source, or a list of sources to read one after the "
            "other).",
        ),
    ],
)
def test_short_forms_of_sources_keep_readable_places(tmp_path, train, sentence):
    assert told(tmp_path, f"name: x\noutput_dir: out\ndata: {{train: {train}}}\n{STAGES}") == [
        sentence
    ]


@pytest.mark.parametrize(
    ("model", "sentence"),
    [
        (
            "{}",
            "expected exactly one of 'base', 'towers', 'members', 'cross_encoder', found none of "
            "them. Give one.",
        ),
        (
            "{base: a, towers: [a, b]}",
            "expected exactly one of 'base', 'towers', 'members', 'cross_encoder', found 'base' "
            "and 'towers'. "
            "Give one.",
        ),
        (
            "{base: a, cross_residual: local}",
            "expected no 'cross_residual' beside 'base', found one. Remove 'cross_residual'.",
        ),
        (
            "{towers: [a, b], pooling: max}",
            "expected cls, mean, first_last, lasttoken, pooler as 'pooling' of a twin, found "
            "'max'. Correct or remove "
            "it.",
        ),
        (
            "{base: a, layers: [2, 1]}",
            "expected each of 'layers' once, in rising order, found [2, 1]. Sort them.",
        ),
    ],
)
def test_faults_between_the_keys_of_a_model(tmp_path, model, sentence):
    text = f"{HEAD}stages:\n  - name: one\n    model: {model}\n    loss: {{type: SimCSELoss}}\n"
    assert told(tmp_path, text) == [f"r.yaml:6 stages[0].model: {sentence}"]


def test_a_wrong_choice_names_the_nearest(tmp_path):
    text = STAGES.replace("embedded", "embedded, pooling: men")
    assert told(tmp_path, HEAD + text) == [
        "r.yaml:6 stages[0].model.pooling: expected one of 'cls', 'lasttoken', 'max', 'mean', "
        "'mean_sqrt_len_tokens', 'weightedmean', ..., found 'men'. Did you mean 'mean'?"
    ]


def test_a_wrong_name_is_told_its_rule(tmp_path):
    (sentence,) = told(tmp_path, HEAD + STAGES.replace("name: one", "name: ../one"))
    assert sentence == (
        "r.yaml:5 stages[0].name: expected letters, digits, '_', '.' or '-', starting with a "
        "letter or digit, "
        "found '../one'. Correct it (Folder name of the stage; later stages use stage:NAME)."
    )


def test_a_missing_key_has_the_line_of_its_block(tmp_path):
    text = "\nname: x\noutput_dir: out\n" + STAGES.replace("    loss: {type: SimCSELoss}\n", "")
    assert told(tmp_path, text) == [
        "r.yaml:5 stages[0].loss: expected a value, found none. Add it (The training objective; "
        "null: the model is "
        "assembled, saved and evaluated as it is)."
    ]


def test_equal_faults_are_told_once(tmp_path):
    path = tmp_path / "r.yaml"
    path.write_text(HEAD)
    source = load(path, "r.yaml")
    fault = Fault(("name",), "expected y, found x. Write y.")
    assert tell(source, [fault, fault]) == ["r.yaml:1 name: expected y, found x. Write y."]


def test_nearest_ignores_case_and_stays_silent_when_nothing_is_near():
    assert nearest("jtcseloss", ["SimCSELoss", "JTCSELoss"]) == "JTCSELoss"
    assert nearest("zzz", ["SimCSELoss", "JTCSELoss"]) is None


def test_unknown_lists_what_there_is_or_the_way_given():
    assert unknown("a key", "zzz", ["a", "b"]) == "expected a key, found 'zzz'. Use one of: a, b."
    assert unknown("a key", "zzz", []) == "expected a key, found 'zzz'. Remove it."
    assert unknown("a key", "zzz", ["a"], "Ask.") == "expected a key, found 'zzz'. Ask."


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "null"),
        (True, "true"),
        ([1, 2], "a list of 2"),
        ({}, "a mapping"),
        (1e-5, "1e-05"),
        ("x" * 99, f"'{'x' * 56}..."),
    ],
)
def test_values_are_shown_short_and_as_in_yaml(value, text):
    assert shown(value) == text
