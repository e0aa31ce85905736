"""What the documents name exists, and what they show runs."""

import importlib.util
import json
import re
import shlex
import textwrap
from itertools import pairwise
from pathlib import Path

import pytest
import yaml
from conftest import (
    WORDS,
    make_labelled,
    make_model,
    make_pairs,
    make_pipeline,
    make_sentences,
    save_encoder,
    write_rows,
)

from st_jtcse import bundled, embedded, losses
from st_jtcse.cli import convert, push
from st_jtcse.cli import eval as evaluate
from st_jtcse.cli.train import _parser, main
from st_jtcse.evaluation.mteb_models import UniqueTextEncoder, register
from st_jtcse.evaluation.protocols import suites
from st_jtcse.losses.catalogue import loss_names
from st_jtcse.modules import (
    AttentionPooling,
    EnsembleEncoder,
    MultiTokenizerEnsemble,
    PoolerModulusHead,
    TrainingHead,
    TwinCrossAttentionEncoder,
    save_for_inference,
)
from st_jtcse.papers import losses as of_papers
from st_jtcse.papers.cli import convergence, diagnose, score
from st_jtcse.papers.evaluation import SentEvalSTSEvaluator, SentEvalTransferEvaluator
from st_jtcse.towers import EnsembleEncoderModel, TwinEncoderModel

ROOT = Path(__file__).parents[1]
TESTS = "\n".join(path.read_text() for path in (ROOT / "tests").rglob("test_*.py"))
TERMINAL = ROOT / "docs" / "terminal.md"
SKILL = ROOT / "docs" / "skills" / "st-jtcse" / "SKILL.md"
NOTEBOOKS = sorted((ROOT / "docs" / "notebooks").glob("*.ipynb"))
PAGES = [ROOT / "README.md", ROOT / "llms.txt", SKILL, *sorted((ROOT / "docs").glob("*.md"))]


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.name)
def test_links_recipes_and_tests_exist(page):
    text = page.read_text()
    for target in re.findall(r"\]\((?!http)([^)#]+)\)", text):
        assert (page.parent / target).exists(), target
    for name in re.findall(r"`(test_\w+)`", text):
        assert f"def {name}(" in TESTS, name
    for name in re.findall(r"st-train ([a-z][a-z-]+)(?!\.yaml|[\w-])", text):
        assert name in {*bundled.recipes(), "init", "texts"}, name


def test_messages_that_the_page_explains_are_those_of_the_code():
    code = "".join(
        re.sub(r'"\s*f?"', "", path.read_text()) for path in (ROOT / "st_jtcse").rglob("*.py")
    )
    page = (ROOT / "docs" / "troubleshooting.md").read_text()
    told = re.findall(r"^\| `([^|]*?)` \|", page, re.MULTILINE)
    assert len(told) > 20
    for message in told:
        # The longest run of words in it that is not of an example.
        words = re.split(r"'[^']*'|\d+|\.\.\.|\?|, found", message)
        assert max(words, key=len).removesuffix("triplets").strip(" ,.:") in code, message


def test_the_costs_of_views_are_those_that_were_measured():
    found = json.loads((ROOT / "benchmarks" / "results" / "view_costs.json").read_text())["ways"]
    rows = re.findall(
        r"^\| `([a-z-]+-mini)`.* \| ([\d.]+) \|$",
        (ROOT / "docs" / "views.md").read_text(),
        re.MULTILINE,
    )
    assert dict(rows) == {name: f"{way['ratio']:.2f}" for name, way in found.items()}


def test_the_readme_is_short_and_shows_every_option():
    readme = (ROOT / "README.md").read_text()
    assert len(readme.splitlines()) <= 150
    # What it does, what that gains, how to install it and what to run: one screen of a terminal.
    screen = readme.partition("\n## ")[0].splitlines()
    assert len(screen) <= 40 and max(map(len, screen)) <= 80
    for action in _parser()._actions:
        for option in action.option_strings:
            if option.startswith("--") and option != "--help":
                assert f"`{option}" in readme, option


def test_the_pages_on_conversion_show_every_option():
    page = (ROOT / "docs" / "conversion.md").read_text()
    commands = next(
        action.choices for action in convert._parser()._actions if action.dest == "command"
    )
    assert sorted(commands) == ["join", "split"]
    for name, parser in commands.items():
        assert f"st-convert {name}" in page
        for action in parser._actions:
            for option in action.option_strings:
                if option.startswith("--") and option != "--help":
                    assert f"`{option}" in page, option


@pytest.mark.parametrize(
    ("page", "command"),
    [("diagnostics", diagnose), ("lsrns", score), ("ranking", convergence), ("hub", push)],
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
    for example in re.findall(
        r"```python\n(.*?)```", (ROOT / "docs" / "evaluation.md").read_text(), re.DOTALL
    ):
        exec(example, names)
    assert names["model"].encode(["one dog"]).shape == (1, 32)


def runnable(code, tower_folders):
    """Put tiny local encoders where an example names models of a user or the Hub."""
    for name, folder in zip(("path/to/encoder_1", "path/to/encoder_2"), tower_folders):
        code = code.replace(name, str(folder))
    for name in ("path/to/other", "path/to/teacher"):
        code = code.replace(name, str(tower_folders[1]))
    return code.replace("bert-base-uncased", str(tower_folders[0]))


# What no recording shows: places of a machine, and what went wrong.
UNWANTED = re.compile(r"/(?:tmp|root|home|work)/|[Ww]arning|Traceback")
FEW = ["--set", "args.max_steps=2", "--set", "args.use_cpu=true", "--set", "cache_dir=cache"]
# Of the stages that have steps of their own.
FEWER = {
    "adapt": [
        *("--set", "stages.distilled.args.max_steps=2"),
        *("--set", "stages.distilled_copies.args.max_steps=2"),
    ],
    "quickstart": ["--set", "stages.joint.args.max_steps=2"],
}


@pytest.fixture
def user(tmp_path, monkeypatch):
    """A folder with the files that the pages call the user's, and a tiny model for the embedded
    one.
    """
    monkeypatch.chdir(tmp_path)
    # Which knows the bundled sentences' words too.
    text = (bundled.folder("recipes") / "quickstart" / "sentences.txt").read_text()
    words = [*WORDS, *sorted({*re.findall(r"\w+", text)} - {*WORDS})]
    shape = {"vocab_size": len(words) + 5, "max_position_embeddings": 160, "num_hidden_layers": 2}
    encoder = save_encoder(tmp_path / "encoder", 1, words=words, **shape)
    make_model(encoder, "mean").save_pretrained("tiny", create_model_card=False)
    monkeypatch.setattr(embedded, "folder", lambda: tmp_path / "tiny")
    sentences = list(dict.fromkeys(make_sentences(220)))[:160]
    (tmp_path / "my.txt").write_text("\n".join(sentences) + "\n")
    rows = "".join(f"{first};{second}\n" for first, second in pairwise(sentences))
    (tmp_path / "faq.csv").write_text(f"Question;Answer\n{rows}")
    # Scores that lie in 0 to 1 and in 0 to 5.
    for seed, name in enumerate(("my-pairs", "my-dev")):
        rows = [row | {"score": row["score"] / 5} for row in make_pairs(16, seed)]
        write_rows(tmp_path / f"{name}.jsonl", rows)
    return tmp_path


def script(name):
    """A module of docs/."""
    spec = importlib.util.spec_from_file_location(name, ROOT / "docs" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def blocks(page, language):
    return re.findall(rf"```({language})\n(.*?)```", page.read_text(), re.DOTALL)


def unchanging(text):
    """A text without what differs from run to run: figures, names of stages, and where lines are
    broken.
    """
    return re.sub(
        r"-?[\d.]+", "N", re.sub(r"encoder_[12]|joint|distilled", "STAGE", "".join(text.split()))
    )


def test_the_readme_runs_from_its_top_to_its_end(user, capsys):
    """As pasted, in order; .ci/run runs the block that tests, its like is the one that installs.

    What the quickstart says is what was recorded of it, and fits 40 lines with the eleven
    evaluations of a whole run, whose joint stage keeps its start; bars, which only a process of its
    own can hold back, do not count.
    """
    ran, said = [], []
    for language, block in blocks(ROOT / "README.md", "bash|python"):
        if "pip install" in block:
            continue
        names = {}
        if language == "python":
            exec(block, names)
        for line in block.splitlines() if language == "bash" else ():
            command, *options = shlex.split(line)
            few = [] if options[0] == "init" else [*FEW, *FEWER.get(options[0], [])]
            assert (command, main([*options, *few])) == ("st-train", 0)
            told = capsys.readouterr()
            said = (told.err + told.out).split("\n") if options == ["quickstart"] else said
        ran.append(names)
    assert len(ran) == 4 and ran[2]["embeddings"].shape == (2, 32)
    varying = re.compile(
        r"%\||\w+: step |keeps the model it started from|tokenizer does not know|^$"
    )
    assert len([line for line in said if not varying.search(line)]) + 12 <= 40
    lasting = re.compile(r"train: |dev: |\w+: finished|Best model|Next: |Curves")
    recorded, kept = (
        unchanging(TERMINAL.read_text()),
        [line for line in said if lasting.match(line)],
    )
    assert len(kept) == 9 and not [line for line in kept if unchanging(line) not in recorded]
    for folder in (
        "runs/mine/adapted",
        "runs/pairs/cosent",
        "runs/quickstart/distilled",
        "my-twin",
    ):
        assert (user / folder / "modules.json").is_file(), folder


def test_recordings_fit_their_terminals_and_name_no_place_of_a_machine():
    page = TERMINAL.read_text()
    widths = [int(width) for width in re.findall(r"<!-- (\d+) columns: ", page) for _ in range(2)]
    shown = re.findall(r"```text\n(.*?)```", page, re.DOTALL)
    assert widths == [80, 80, 100, 100] and len(shown) == 4
    for width, lines in zip(widths, shown):
        assert max(map(len, lines.removeprefix("$ ").partition("\n")[2].splitlines())) <= width
    assert not UNWANTED.search(page)


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_holds_what_its_source_printed(path):
    recorded = json.loads(path.read_text())["cells"]
    kinds = {"code": {"execution_count", "outputs"}, "markdown": set()}
    written = script("recordings").cells_of(path.with_suffix(".py").read_text())
    made = [{key: cell[key] for key in cell.keys() - kinds["code"]} for cell in recorded]
    assert made == written, f"run python docs/recordings.py {path.stem}"
    for cell in recorded:
        assert {key for key in kinds["code"] if cell.get(key)} == kinds[cell["cell_type"]]
        assert not UNWANTED.search(json.dumps(cell.get("outputs")))


def test_the_commands_of_the_skill_fit_their_data(user):
    front = yaml.safe_load(SKILL.read_text().split("---")[1])
    assert front["name"] == SKILL.parent.name and 0 < len(front["description"]) <= 1024
    (user / "my-model").symlink_to(user / "tiny")
    write_rows(user / "my-labelled.jsonl", make_labelled(16, 3))
    lines = [line for _, block in blocks(SKILL, "bash") for line in block.splitlines()]
    assert len({line.removesuffix(" --dry-run") for line in lines}) == 7
    for line in lines:
        command, *options = shlex.split(line)
        if command == "st-eval":
            assert evaluate._parser().parse_args(options).data == [Path("my-labelled.jsonl")]
        elif "--copy" in options:
            assert main(options) == 0
        elif line + " --dry-run" not in lines:
            assert (
                main([*options, *FEW, *(["--dry-run"] if "--dry-run" not in options else [])]) == 0
            ), line
    assert not (user / "runs").exists()


@pytest.mark.parametrize(
    ("name", "fewer", "said"),
    [
        (
            "adapt",
            [*FEWER["adapt"], "--set", "stages.distilled_copies.args.eval_steps=1"],
            "adapted: nearest to",
        ),
        ("jtcse", [*FEWER["quickstart"], "--set", "args.eval_steps=2"], "the sum of both: True"),
        ("pairs", [], "held_out: "),
        ("search", [], "queries gain"),
    ],
)
def test_a_notebook_runs_with_few_steps_on_a_tiny_model(
    name, fewer, said, user, capsys, unrehearsed
):
    names = {}
    for cell in json.loads((ROOT / "docs" / "notebooks" / f"{name}.ipynb").read_text())["cells"]:
        code = "".join(cell["source"])
        if cell["cell_type"] != "code":
            continue
        if not code.startswith("!"):
            exec(code, names)
            continue
        command, *options = shlex.split(code[1:].replace("\\\n", ""))
        small = [*FEW, *fewer] if command == "st-train" and "--copy" not in options else []
        commands = {"st-train": main, "st-eval": evaluate.main}
        assert commands[command]([*options, *small]) == 0
    assert said in capsys.readouterr().out


def test_the_recipe_of_the_page_on_losses_goes(user):
    ((_, recipe),) = blocks(ROOT / "docs" / "which-loss.md", "yaml")
    (user / "mine.yaml").write_text(recipe)
    texts = make_sentences(80)
    write_rows(
        user / "my-queries.jsonl", [{"anchor": a, "positive": b} for a, b in zip(texts, texts[3:])]
    )
    write_rows(
        user / "my-dev.jsonl", [{"query": a, "relevant": b} for a, b in zip(texts, texts[2:])]
    )
    assert main(["mine.yaml", "--dry-run", *FEW]) == 0
    named = re.findall(r"`(\w+Loss)`", (ROOT / "docs" / "which-loss.md").read_text())
    assert len(set(named)) >= 10 and {*named} <= {*loss_names(), *loss_names(True)}


def test_ensemble_examples_run(tower_folders, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names = {}
    # One after the other, as they are read; the first names a twin, which the second page makes.
    assert convert.main(["join", *map(str, tower_folders), "path/to/twin"]) == 0
    for example in re.findall(
        r"```python\n(.*?)```", (ROOT / "docs" / "ensembles.md").read_text(), re.DOTALL
    ):
        exec(runnable(example, tower_folders), names)
    assert names["embeddings"].shape == (2, 32)


def test_ecosystem_examples_run(tower_folders, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names = {}
    # One after the other, as they are read: the second adds to the twin that the first one saves.
    for example in re.findall(
        r"```python\n(.*?)```", (ROOT / "docs" / "ecosystem.md").read_text(), re.DOTALL
    ):
        exec(runnable(example, tower_folders), names)
    assert names["short"].shape == (1, 8)
    assert abs(names["merged"].encode(["It is sunny today."]) - names["embeddings"]).max() < 1e-5


def test_the_example_of_an_onnx_graph_runs(tower_folders, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    save_for_inference(make_pipeline(tower_folders), "my-twin")
    (example,) = re.findall(
        r"```python\n(.*?)```", (ROOT / "docs" / "formats.md").read_text(), re.DOTALL
    )
    names = {}
    exec(example, names)
    expected = names["model"].encode(["A man is eating.", "Someone has a meal."])
    assert abs(names["embeddings"] - expected).max() < 1e-5


def test_the_tables_of_keys_are_those_of_the_schema():
    """Made by docs/recipe_tables.py; every key that it says more of is there."""
    tables = script("recipe_tables")
    page = tables.PAGE.read_text(encoding="utf-8")
    assert tables.made(page) == page, "run python docs/recipe_tables.py"
    assert all(f"| `{key}` |" in page for key in tables.MORE)


def test_the_diagnostics_example_runs(tower_folders, capsys):
    (example,) = re.findall(
        r"```python\n(.*?)```", (ROOT / "docs" / "diagnostics.md").read_text(), re.DOTALL
    )
    exec(runnable(example, tower_folders), {})
    assert len(capsys.readouterr().out.strip(" []\n").split()) == 4


@pytest.mark.parametrize(
    "documented",
    [
        *(getattr(losses, name) for name in [*losses.__all__, *of_papers.__all__]),
        AttentionPooling,
        EnsembleEncoder,
        EnsembleEncoderModel,
        MultiTokenizerEnsemble,
        PoolerModulusHead,
        SentEvalSTSEvaluator,
        SentEvalTransferEvaluator,
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
    (example,) = re.findall(
        r"Example:\n +::\n\n(.*?)(?:\n\n    References|\Z)", documented.__doc__, re.DOTALL
    )
    exec(runnable(textwrap.dedent(example), tower_folders), {})
