"""What the documents name exists, and what they show runs."""

import re
import textwrap
from pathlib import Path

import pytest
from conftest import make_model, make_pipeline

from st_jtcse import bundled
from st_jtcse.cli import convergence, convert, diagnose, push, score
from st_jtcse.cli import eval as evaluate
from st_jtcse.cli.train import _parser
from st_jtcse.evaluation import SentEvalSTSEvaluator, SentEvalTransferEvaluator
from st_jtcse.evaluation.mteb_models import UniqueTextEncoder, register
from st_jtcse.evaluation.suites import suites
from st_jtcse.losses import CrossEncoderCoSENTLoss, JTCSELoss, LSRNSLoss, RankCSELoss, SimCSELoss
from st_jtcse.modules import (
    AttentionPooling,
    EnsembleEncoder,
    MultiTokenizerEnsemble,
    PoolerModulusHead,
    TrainingHead,
    TwinCrossAttentionEncoder,
    save_for_inference,
)
from st_jtcse.towers import EnsembleEncoderModel, TwinEncoderModel

ROOT = Path(__file__).parents[1]
TESTS = "\n".join(path.read_text() for path in (ROOT / "tests").rglob("test_*.py"))
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.name)
def test_links_recipes_and_tests_exist(page):
    text = page.read_text()
    for target in re.findall(r"\]\((?!http)([^)#]+)\)", text):
        assert (page.parent / target).exists(), target
    for name in re.findall(r"`(test_\w+)`", text):
        assert f"def {name}(" in TESTS, name
    for name in re.findall(r"st-train ([a-z][a-z-]+)", text):
        assert name in bundled.recipes(), name


def test_the_readme_shows_every_option():
    readme = (ROOT / "README.md").read_text()
    for action in _parser()._actions:
        for option in action.option_strings:
            if option.startswith("--") and option != "--help":
                assert f"`{option}" in readme, option


def test_the_pages_on_conversion_show_every_option():
    page = (ROOT / "docs" / "conversion.md").read_text()
    commands = next(action.choices for action in convert._parser()._actions if action.dest == "command")
    assert sorted(commands) == ["join", "split"]
    for name, parser in commands.items():
        assert f"st-convert {name}" in page
        for action in parser._actions:
            for option in action.option_strings:
                if option.startswith("--") and option != "--help":
                    assert f"`{option}" in page, option


@pytest.mark.parametrize(
    ("page", "command"), [("diagnostics", diagnose), ("lsrns", score), ("ranking", convergence), ("hub", push)]
)
def test_the_page_of_a_command_shows_every_option(page, command):
    page = (ROOT / "docs" / f"{page}.md").read_text()
    for action in command._parser()._actions:
        for option in action.option_strings:
            if option.startswith("--") and option != "--help":
                assert f"`{option}" in page, option


def test_the_page_on_evaluation_shows_every_option_and_suite():
    page = (ROOT / "docs" / "evaluation.md").read_text()
    for action in evaluate._parser()._actions:
        for option in action.option_strings:
            if option.startswith("--") and option != "--help":
                assert f"`{option}" in page, option
    for name in suites():
        assert f"`{name}`" in page, name


def test_evaluation_examples_run(tower_folders, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    make_model(tower_folders[0]).save_pretrained("path/to/model", create_model_card=False)
    names = {}
    for example in re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "evaluation.md").read_text(), re.DOTALL):
        exec(example, names)
    assert names["model"].encode(["one dog"]).shape == (1, 32)


def runnable(code, tower_folders):
    """Put tiny local encoders where an example names models of a user or the Hub."""
    for name, folder in zip(("path/to/encoder_1", "path/to/encoder_2"), tower_folders):
        code = code.replace(name, str(folder))
    for name in ("path/to/other", "path/to/teacher"):
        code = code.replace(name, str(tower_folders[1]))
    return code.replace("bert-base-uncased", str(tower_folders[0]))


def test_readme_examples_run(tower_folders, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    encode, script = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    names = {}
    exec(runnable(script, tower_folders), names)
    (tmp_path / "runs" / "quickstart").mkdir(parents=True)
    (tmp_path / "my-twin").rename(tmp_path / "runs" / "quickstart" / "joint")
    names = {}
    exec(encode, names)
    assert names["embeddings"].shape == (2, 32)


def test_ensemble_examples_run(tower_folders, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names = {}
    # One after the other, as they are read; the first names a twin, which the second page makes.
    assert convert.main(["join", *map(str, tower_folders), "path/to/twin"]) == 0
    for example in re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "ensembles.md").read_text(), re.DOTALL):
        exec(runnable(example, tower_folders), names)
    assert names["embeddings"].shape == (2, 32)


def test_ecosystem_examples_run(tower_folders, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names = {}
    # One after the other, as they are read: the second adds to the twin that the first one saves.
    for example in re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "ecosystem.md").read_text(), re.DOTALL):
        exec(runnable(example, tower_folders), names)
    assert names["short"].shape == (1, 8)
    assert abs(names["merged"].encode(["It is sunny today."]) - names["embeddings"]).max() < 1e-5


def test_the_example_of_an_onnx_graph_runs(tower_folders, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    save_for_inference(make_pipeline(tower_folders), "my-twin")
    (example,) = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "formats.md").read_text(), re.DOTALL)
    names = {}
    exec(example, names)
    expected = names["model"].encode(["A man is eating.", "Someone has a meal."])
    assert abs(names["embeddings"] - expected).max() < 1e-5


def test_the_diagnostics_example_runs(tower_folders, capsys):
    (example,) = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "diagnostics.md").read_text(), re.DOTALL)
    exec(runnable(example, tower_folders), {})
    assert len(capsys.readouterr().out.strip(" []\n").split()) == 4


@pytest.mark.parametrize(
    "documented",
    [
        AttentionPooling,
        CrossEncoderCoSENTLoss,
        EnsembleEncoder,
        EnsembleEncoderModel,
        JTCSELoss,
        MultiTokenizerEnsemble,
        PoolerModulusHead,
        LSRNSLoss,
        RankCSELoss,
        SentEvalSTSEvaluator,
        SentEvalTransferEvaluator,
        SimCSELoss,
        TrainingHead,
        TwinCrossAttentionEncoder,
        TwinEncoderModel,
        UniqueTextEncoder,
        register,
    ],
    ids=lambda cls: cls.__name__,
)
def test_docstring_examples_run(documented, tower_folders, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (example,) = re.findall(r"Example:\n +::\n\n(.*?)(?:\n\n    References|\Z)", documented.__doc__, re.DOTALL)
    exec(runnable(textwrap.dedent(example), tower_folders), {})
