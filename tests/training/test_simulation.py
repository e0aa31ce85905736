"""`st-train --dry-run --simulate`: what a run of another size takes."""

import pytest
import yaml
from conftest import make_sentences
from test_run import project, train  # noqa: F401  # project is a fixture

from st_jtcse.recipe.load import load_recipe
from st_jtcse.recipe.scale import Demand, Scale
from st_jtcse.recipe.yaml_source import dump
from st_jtcse.training.at_scale import Part, Simulation, StageAtScale
from st_jtcse.training.simulation import simulate

TAUGHT = {
    "name": "taught",
    "model": {"base": "./a", "pooling": "cls"},
    "teachers": [{"model": "./b", "pooling": "mean"}],
    "neighbours": {"count": 3, "weight": 0.4, "anchors": "general.txt", "anchor_share": 0.2},
    "loss": {"type": "EmbedDistillLoss", "distance_metric": "cosine"},
}
RATES = {"train": 10.0, "encode": 100.0, "compare": 1000.0}


@pytest.fixture
def work(project, monkeypatch):  # noqa: F811
    """A project whose one stage has a teacher and neighbours, and trains an epoch."""
    monkeypatch.chdir(project)
    (project / "general.txt").write_text("\n".join(make_sentences(40, seed=9)) + "\n")
    return written(project, TAUGHT)


def written(folder, *stages, **keys):
    recipe = yaml.safe_load((folder / "recipe.yaml").read_text())
    recipe |= {"stages": list(stages), **keys}
    recipe["args"] |= {"max_steps": -1, "num_train_epochs": 1}
    (folder / "recipe.yaml").write_text(dump(recipe))
    return folder


def simulated(folder, scale, *overrides):
    loaded = load_recipe(str(folder / "recipe.yaml"), list(overrides))
    return simulate(loaded, loaded.choose([]), scale)


def demands(found):
    return {part.demand.what.partition(",")[0]: part for part in found.parts}


def test_each_part_takes_what_its_formula_says(work):
    found = simulated(work, Scale(1000, nodes=2, devices=4, rates=RATES))
    parts = demands(found)
    # Half precision of 32 components, each of eight processes an eighth of the texts, which all
    # read from the disk that the nodes share.
    teachers = parts["teachers' vectors"].demand
    assert (teachers.count, teachers.disk, teachers.beside) == (125, 64_000, 64_000)
    assert teachers.wire == 64_000 and parts["teachers' vectors"].seconds == 1.25
    # A million pairs in eight shares; three places and cosines of each text for the seven others.
    neighbours = parts["neighbours"].demand
    assert (neighbours.count, neighbours.wire, neighbours.held) == (125_000, 21_000, 64_000)
    # 10 bytes a component, 16 for each of a thousand texts' comparisons with a thousand, and what
    # the other processes found.
    assert neighbours.held + neighbours.peak == 10 * 32_000 + 16e6 + 24_000
    assert parts["anchors' vectors"].demand.disk == 2 * 32 * 40
    # 1,250 rows with the anchors: 19 whole batches of 8 in each of eight processes.
    training, weights = parts["training"], 18_880
    assert training.demand.what == "training, 19 steps" and training.seconds == 19 * 8 / 10
    assert training.demand.wire == 2 * 7 / 8 * 4 * weights * 19
    assert training.demand.held == 4 * 1250 and training.demand.disk == 4 * weights
    # The best, the last and the next checkpoint, of three numbers a weight.
    assert training.demand.beside == 3 * 12 * weights
    # Two sides of 15 pairs in two sets, three times; dev after every second step.
    assert parts["evaluation"].demand.count == 3 * 60 + 9 * 30
    assert found.seconds == pytest.approx(
        found.start + 1.25 + 125 + 40 / 8 / 100 + 4.5 + 15.2, rel=1e-9
    )
    assert found.disk == 64_000 + 2560 + 4 * weights
    assert all(part.is_given for part in found.parts if part.demand.count)


def test_one_process_sends_nothing(work):
    found = simulated(work, Scale(1000, rates=RATES))
    assert {part.demand.wire for part in found.parts} == {0.0}
    # The last batch need not be full: 156.25 of them.
    assert demands(found)["training"].demand.what == "training, 157 steps"


def test_a_rate_of_a_stage_goes_before_that_of_all(work):
    rates = RATES | {"encode.taught": 50.0}
    assert demands(simulated(work, Scale(1000, rates=rates)))["teachers' vectors"].seconds == 20


def test_large_text_lies_on_the_disk_and_small_text_in_memory(work):
    parts = demands(simulated(work, Scale(10_000, rates=RATES)))
    own = parts["text"].demand.held / (10_000 - 65)
    assert parts["text"].demand.disk == 0 and 40 < own < 60
    # 16 MiB are more than 300,000 of these lines.
    text = demands(simulated(work, Scale(10**6, nodes=2, rates=RATES)))["text"].demand
    assert text.held == 0 and text.disk == text.wire == pytest.approx(1e6 * own)


def test_what_is_not_given_is_measured_on_the_recipes_own_models(work):
    before = sorted(work.rglob("*"))
    found = simulated(work, Scale(1000))
    worked = [part for part in found.parts if part.demand.count]
    assert len(worked) == 5 and not any(part.is_given for part in worked)
    assert all(part.rate > 1 for part in worked)
    assert 1e8 < found.stages["taught"].idle <= found.stages["taught"].working < 1e10
    assert found.memory > found.stages["taught"].working
    told = "\n".join(found.lines())
    assert "taught: teachers' vectors: " in told and " texts embedded without gradients a " in told
    assert "measured on " in told and "given" not in told
    assert sorted(work.rglob("*")) == before


def test_what_cannot_be_measured_has_no_time_and_asks_for_a_rate(work):
    trips = {"pivots": [{"name": "de", "forward": "./b", "back": "./b"}]}
    written(work, TAUGHT | {"augment": trips})
    found = simulated(work, Scale(1000, rates=RATES))
    part = demands(found)["round trips"]
    assert part.seconds is None and part.demand.count == 1000
    (line,) = [line for line in found.lines() if "no rate" in line]
    assert line == (
        "taught: round trips: no rate; add translate=RATE, texts translated there and back a second"
    )
    assert found.table().rows[-1][1].startswith("at least ")


def test_what_says_nothing_of_its_size_is_told(work):
    written(work, TAUGHT | {"watched": ["topics"]})
    assert simulated(work, Scale(1000, rates=RATES)).lines()[-1] == (
        "not counted: reading and converting the text, saving, cards, watched of taught"
    )


def test_held_out_sentences_choose_at_their_number_of_any_size(work):
    (work / "text.txt").write_text("\n".join(dict.fromkeys(make_sentences(220))) + "\n")
    written(work, TAUGHT, evaluate={"dev": "unlabelled"})
    parts = demands(simulated(work, Scale(10**6, rates=RATES)))
    # A thousand of a million; an evaluation after every second of 1.25 million / 8 steps.
    assert parts["evaluation"].demand.count == 3 * 1000 + 78_125 * 1000
    # Each text's row, and while they are split 77 bytes more.
    split = parts["held-out sentences"].demand
    assert (split.held, split.peak) == (8e6, 77e6)
    # Three thousand to see whether there are topics, and those that are held out.
    assert parts["held-out sentences' neighbours"].demand.count == 3000e6 + 1000e6


def test_a_process_holds_what_stays_and_the_larger_of_steps_and_search():
    parts = [
        Part("s", Demand("search", held=10, peak=500), None),
        Part("s", Demand("training", held=5), None),
    ]
    # Search, on top of what was there before the steps.
    assert StageAtScale(parts, 16, idle=100, working=400).memory == 15 + 600
    assert StageAtScale(parts, 16, idle=100, working=700).memory == 15 + 700
    assert StageAtScale(parts[1:], 16).memory == 5 + 16


def test_the_wires_time_needs_their_speed():
    part = Part("s", Demand("training", wire=7.2e12), None)
    stages = {"s": StageAtScale([part], 16)}
    for bandwidth, told in (
        (None, "the wire's speed is not known: add bandwidth=BYTES_A_SECOND for its time"),
        (1e9, "wire: 2.0 hours at 1.0 GB a second (given), part of it while steps are computed; it "
         "is not in the times"),
    ):  # fmt: skip
        scale = Scale(10, devices=2, bandwidth=bandwidth)
        assert told in Simulation(scale, [], stages, 1.0, []).lines()


def test_the_command_shows_the_size_behind_the_plan(work, capsys):
    rates = "train=10,encode=100,compare=1000"
    sizes = ["--dry-run", "--simulate", f"texts=1e3,nodes=2,devices=4,{rates}"]
    assert train(work, *sizes) == 0
    told = " ".join(capsys.readouterr().out.split())
    assert told.index("plan (nothing is written)") < told.index("1,000 texts, 2 x 4 devices")
    assert "1.2 s │ 64.0 kB │ 128.0 kB │ 64.0 kB" in told
    assert "given, not measured: train=10, encode=100, compare=1000" in told
    assert "each of the 8 devices is taken to be as fast as that" in told
    assert told.endswith("To start the run, repeat the command without --dry-run.")


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (["--simulate", "texts=10"], "--simulate plans a run and trains nothing; add --dry-run."),
        (
            ["--simulate", "texts=10,train.none=3", "--dry-run"],
            "--simulate train.none: expected a stage of the run, found 'none'; it has taught.",
        ),
    ],
)
def test_what_does_not_go_together_is_refused(work, capsys, unrehearsed, options, told):
    assert train(work, *options) == 2
    assert capsys.readouterr().err == f"{told}\n"
