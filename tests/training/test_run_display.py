"""What a run shows: a few lines, a display on a terminal, and the rest in run.log."""

import io
import logging
import re
import subprocess
import sys
import time
from types import SimpleNamespace

import pytest
from conftest import run_results, stage_record
from rich.console import Console
from test_run import project, results, train  # noqa: F401  # project is a fixture
from transformers import TrainerState

from st_jtcse.cli import console
from st_jtcse.cli.running import displayed
from st_jtcse.recipe.load import load_recipe
from st_jtcse.records import RunResults, StageRecord
from st_jtcse.reports.run_report import results_table
from st_jtcse.training import stage_lines
from st_jtcse.training.run_folder import LOG, run_log
from st_jtcse.training.run_results import best_stage
from st_jtcse.training.stage_lines import StageLines, tell_end

KEY = "eval_dev_spearman_cosine"


def logging_state():
    loggers = [
        logging.getLogger(name)
        for name in (None, "st_jtcse", "transformers", "huggingface_hub", "datasets")
    ]
    return [(logger.level, logger.handlers[:], logger.propagate) for logger in loggers]


def test_a_run_says_a_line_a_stage_and_an_evaluation_and_keeps_the_rest_in_its_log(project):  # noqa: F811
    command = [
        sys.executable,
        "-m",
        "st_jtcse.cli.train",
        str(project / "recipe.yaml"),
        "--set",
        "args.max_steps=4",
    ]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    (train, dev, time), said = done.stderr.splitlines()[:3], done.stderr.splitlines()[3:]
    assert (train, dev) == (
        f"train: {project / 'text.txt'} (yours)",
        f"dev: {project / 'dev.jsonl'} (yours)",
    )
    assert (
        time
        == "training takes about a minute on this machine; evaluations and teachers' vectors come "
        "on top"
    )
    expected = []
    begun = {
        "encoder": "SimCSELoss, 4 steps, from a: CLS state (pooling: cls), a plain encoder",
        "joint": "JTCSELoss, 4 steps, from stage:encoder and b: CLS state (pooling: cls)",
        "distilled": "MSELoss, 4 steps, from stage:encoder: as that stage leaves it, layers [1]",
    }
    stages = {record["name"]: record for record in results(project)["stages"]}
    for name, record in stages.items():
        loss = {entry["step"]: entry["loss"] for entry in record["log"] if "loss" in entry}
        dev = {entry["step"]: 100 * entry[KEY] for entry in record["log"] if KEY in entry}
        start, end = record["spearman_start"]["dev"], record["spearman"]["dev"]
        taught = f"teacher: computing 65 of 65 sentences, kept in {project / 'cache'}"
        expected += [
            *([taught] if name == "distilled" else []),
            f"{name}: {begun[name]}",
            *(
                f"{name}: step {step} of 4, loss {loss[step]:.3g}, dev {dev[step]:.2f}"
                for step in (2, 4)
            ),
            f"{name}: finished after 4 steps, {record['seconds']:.0f} s, dev {start:.2f} -> "
            f"{end:.2f} "
            f"(step {record['best_step']})",
        ]
    assert [line.partition(" and CLS")[0] for line in without_terms(said)] == expected
    assert re.search(
        r"joint: step 4 of 4, loss [\d.]+ \(nce [\d.]+, icnce [\d.]+, .*\), dev ", done.stderr
    )

    *table, best, usage, following, page = done.stdout.splitlines()
    assert "tiny, seed 7" in table[0] and len(said) + len(table) + 4 <= 40
    ended = best.removeprefix("Best model: ")
    assert following == f"Next: st-eval {ended} --data FILE, with labelled text of your own"
    told = (project / "run" / "report.html").read_text()
    assert (
        page == f"Curves and examples: {project / 'run' / 'report.html'}" and "Dev by step" in told
    )
    assert (
        best
        == f"Best model: {project / 'run' / best_stage(RunResults.model_validate(results(project)))}"
    )
    names = {}
    exec(
        usage.removeprefix("Use it: ").replace(
            "SentenceTransformer(", "vector = SentenceTransformer("
        ),
        names,
    )
    assert names["vector"].shape == (1, 32)
    log = (project / "run" / LOG).read_text()
    assert all(line in log for line in said) and "sentence_transformers.base.model: " in log
    assert "stage_lines: encoder: step 1, {'loss'" in log


def test_a_stage_that_is_not_trained_says_how_long_it_took(project, caplog):  # noqa: F811
    """From its beginning to its end, as the clock beside it."""
    caplog.set_level(logging.INFO)
    began = time.perf_counter()
    train(project, "--stage", "encoder", "--set", "stages.encoder.loss=null")
    passed = time.perf_counter() - began
    (ended,) = [line for line in caplog.messages if ": finished" in line]
    told = re.fullmatch(r"encoder: finished, not trained, (\d+) s, dev [\d.]+ -> [\d.]+", ended)
    assert told is not None and int(told[1]) <= passed + 0.5


@pytest.mark.parametrize(
    ("steps", "told"),
    [
        (0, "start: finished, not trained, 12 s, dev 70.00 -> 71.00"),
        (3, "start: finished after 3 steps, 5 s, dev 70.00 -> 71.00 (step 2)"),
    ],
)
def test_every_stages_last_line_says_its_time_in_one_form(caplog, steps, told):
    caplog.set_level(logging.INFO)
    record = stage_record(
        name="start",
        steps=steps,
        best_step=2,
        seconds=5.2,
        spearman_start={"dev": 70.0},
        spearman={"dev": 71.0},
    )
    tell_end(StageRecord.model_validate(record), 12.3)
    assert caplog.messages == [told]


def without_terms(said):
    """Evaluations' lines without the loss's terms; the start that was kept is told beside them."""
    return [
        re.sub(r"(, loss [^ ]+) \([^)]*\)", r"\1", line)
        for line in said
        if "keeps the model it started from" not in line
    ]


@pytest.fixture
def terminal(monkeypatch):
    """A terminal of 40 columns whose user wants no colours."""
    shown = io.StringIO()
    how = {
        "force_terminal": True,
        "width": 40,
        "soft_wrap": True,
        "markup": False,
        "highlight": False,
    }
    environment = {"NO_COLOR": "1", "TERM": "xterm-256color"}
    monkeypatch.setattr(console, "err", Console(file=shown, _environ=environment, **how))
    return shown


def frames(shown):
    """What a terminal is shown, without what moves its cursor."""
    assert not re.search(r"\x1b\[[\d;]*3\dm", shown), "a colour"
    return re.split(r"[\r\n]+", re.sub(r"\x1b\[[\d;?]*[A-Za-z]", "", shown))


def is_restored(shown):
    """Whether the cursor was hidden and is shown again."""
    return 0 <= shown.rfind("\x1b[?25l") < shown.rfind("\x1b[?25h")


def test_a_narrow_terminal_without_colours_shows_how_far_a_run_is(project, terminal):  # noqa: F811
    before = logging_state()
    assert train(project, "--stage", "encoder") == 0
    assert logging_state() == before
    shown = terminal.getvalue()
    assert is_restored(shown)
    bars = [line for line in frames(shown) if re.search(r"\d/6 ", line)]
    assert bars and max(map(len, bars)) <= 40 and all(line.startswith("1/1 enc") for line in bars)
    assert any("encoder: step 4 of 6, loss" in line for line in frames(shown))


def test_an_interrupted_display_gives_the_cursor_back(terminal):
    with pytest.raises(KeyboardInterrupt), displayed(["one"], speaks=True):
        raise KeyboardInterrupt
    assert is_restored(terminal.getvalue())


def test_one_process_speaks(terminal, capsys):
    with console.own_lines(speaks=False), displayed(["one"], speaks=False) as callbacks:
        logging.getLogger("st_jtcse.training").warning("unheard")
    assert len(callbacks) == 1 and terminal.getvalue() == "" and capsys.readouterr() == ("", "")


def test_errors_and_warnings_of_the_package_are_shown_and_the_libraries_are_not(tmp_path, capsys):
    names = [
        "st_jtcse.hub",
        "transformers.trainer",
        "sentence_transformers",
        "huggingface_hub.x",
        "py.warnings",
    ]
    with console.own_lines():
        for name in names:
            with run_log(tmp_path):  # The second and later ones append.
                logging.getLogger(name).warning("told by %s", name)
        with run_log(tmp_path):
            logging.getLogger("st_jtcse.hub").debug("a detail")
    assert capsys.readouterr() == ("", "told by st_jtcse.hub\n")
    head, *lines = (tmp_path / LOG).read_text().splitlines()
    assert head.startswith("Log ")
    told = [line.partition(": ")[2] for line in lines]
    assert told == [*(f"told by {name}" for name in names), "a detail"]


@pytest.mark.parametrize("fault", ["a folder in its place", "a full disk"])
def test_a_log_that_cannot_be_written_is_told_once(tmp_path, caplog, fault):
    told = f"{tmp_path / LOG} is not the log of this run, which goes on without one."
    if fault == "a full disk":
        told = (
            f"{tmp_path / LOG} cannot be written (No space left on device); the run goes on "
            "without it."
        )
    else:
        (tmp_path / LOG).mkdir()
    with run_log(tmp_path):
        if fault == "a full disk":
            logging.root.handlers[-1].setStream(open("/dev/full", "w")).close()
        for _ in range(3):
            logging.getLogger("st_jtcse").warning("on")
    assert sorted(caplog.messages) == sorted([told, "on", "on", "on"])


def test_the_table_of_the_quickstart_fits_80_columns():
    names = ("encoder_1", "encoder_2", "joint", "distilled")
    scores = {"dev": 79.73, "test": 80.08}
    told = {"parameters": 22_700_000, "best_step": 0, "spearman_start": scores}
    stages = [stage_record(name, steps=30, spearman=scores, **told) for name in names]
    found = run_results("quickstart", 42, *stages, as_shipped={"embedded": scores})
    shown = io.StringIO()
    table = results_table(RunResults.model_validate(found))
    Console(file=shown, width=80).print(table.terminal())
    # A title, a heading, four rules and a line a row: no cell is broken.
    lines = shown.getvalue().splitlines()
    assert len(lines) == 10 and max(map(len, lines)) <= 80
    assert (
        "embedded, as shipped" in lines[4]
        and "79.73 -> 79.73" in lines[8]
        and "distilled, start kept" in lines[8]
    )


def test_an_evaluation_tells_how_long_is_left(monkeypatch, caplog):
    now = iter([0.0, 100.0, 200.0, 290.0])
    monkeypatch.setattr(stage_lines.time, "perf_counter", lambda: next(now))
    stage = load_recipe("simcse-mini").stages[0]
    args = SimpleNamespace(metric_for_best_model=KEY)
    state = TrainerState(global_step=50, max_steps=200)
    with caplog.at_level(logging.INFO):
        lines = StageLines(stage)
        lines.on_train_begin(args, state, None)  # on from step 50, at 100 s
        for step in (50, 100, 190):
            state.global_step = step
            lines.on_evaluate(args, state, None, metrics={KEY: 0.8})
    assert [line.partition("dev ")[2] for line in caplog.messages[1:]] == [
        "80.00",
        "80.00, about 3 minutes left",  # 50 steps in 100 s, 100 to go
        "80.00",  # seconds are not worth telling
    ]
