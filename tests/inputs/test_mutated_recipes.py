"""Any change of any bundled recipe is taken, and then written and read as the same, or refused in
sentences.
"""

import copy
import functools
import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from test_recipes import shrink, tiny  # noqa: F401  # a fixture

from st_jtcse import bundled
from st_jtcse.cli.train import main
from st_jtcse.errors import UserError
from st_jtcse.recipe import extends, yaml_source
from st_jtcse.recipe.load import load_recipe, resolved_yaml
from st_jtcse.training.stage_arguments import training_arguments
from st_jtcse.training.sweep import plan_runs

RECIPES = bundled.recipes()
# Of a minute or less on small models; the others are like one of these.
SMALL = ["adapt", "quickstart", "whitening", *(name for name in RECIPES if name.endswith("-mini"))]
NUMBERS = [0, -1, 1, 2, 3, 1e-5, 0.5, 1e308, 2**31, 2**63, 10**400, float("inf"), float("nan")]
TEXTS = [
    "", " ", "no", "1e-5", "null", "~", "unlabelled", "embedded", "stage:", "stage:encoder_1",
    "a.b", "./x", "~/x", "~nobody-here/x", "/", "\0", "\x85", "\u2028", "\ud800", "\n", "é",
    "x" * 300, "1..3",
]  # fmt: skip
OF_TYPE = {
    bool: st.booleans(),
    int: st.integers(-2, 5) | st.sampled_from(NUMBERS),
    float: st.floats(0, 1) | st.sampled_from(NUMBERS),
    str: st.sampled_from(TEXTS) | st.text(max_size=5),
}
ANYTHING = st.recursive(
    st.sampled_from([None, True, False, *NUMBERS, *TEXTS, [], {}]),
    lambda inner: (
        st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=4), inner, max_size=2)
    ),
    max_leaves=3,
)


@functools.cache
def resolved(name):
    """The tree of a recipe as a run folder or --show has it."""
    return load_recipe(name).recipe.model_dump(mode="json")


def places(tree, loc=()):
    """The location of every value in a tree."""
    if loc:
        yield loc
    if isinstance(tree, (dict, list)):
        for key, value in tree.items() if isinstance(tree, dict) else enumerate(tree):
            yield from places(value, (*loc, key))


def at(tree, loc):
    return functools.reduce(lambda held, key: held[key], loc, tree)


@functools.cache
def vocabulary():
    """Every key of the bundled recipes, and every location with its value."""
    trees = [resolved(name) for name in RECIPES]
    found = [(loc, at(tree, loc)) for tree in trees for loc in places(tree)]
    keys = sorted({loc[-1] for loc, _ in found if isinstance(loc[-1], str)})
    return st.sampled_from(keys) | st.text(max_size=5), found


def replaced(draw, tree, held, key):
    held[key] = draw(OF_TYPE.get(type(held[key]), ANYTHING) | ANYTHING)


def removed(draw, tree, held, key):
    del held[key]


def emptied(draw, tree, held, key):
    value = held[key]
    held[key] = type(value)() if isinstance(value, (dict, list, str)) else None


def renamed(draw, tree, held, key):
    if isinstance(held, dict):
        held[draw(vocabulary()[0])] = held.pop(key)


def added(draw, tree, held, key):
    block = held[key] if isinstance(held[key], dict) else held
    if isinstance(block, dict):
        block[draw(vocabulary()[0])] = draw(ANYTHING)


def wrapped(draw, tree, held, key):
    value = held[key]
    held[key] = draw(st.sampled_from([[value], {"a": value}, [value, copy.deepcopy(value)]]))


def from_another(draw, tree, held, key):
    """A value of another recipe, often one that stands under the same key there."""
    found = vocabulary()[1]
    alike = [other for other in found if other[0][-1] == key] or found
    held[key] = copy.deepcopy(draw(st.sampled_from(alike) | st.sampled_from(found))[1])


def from_elsewhere(draw, tree, held, key):
    loc = draw(st.sampled_from(list(places(tree))))
    held[key] = copy.deepcopy(at(tree, loc))


CHANGES = [replaced, removed, emptied, renamed, added, wrapped, from_another, from_elsewhere]


@st.composite
def changed(draw):
    """A bundled recipe's tree with some changes."""
    tree = copy.deepcopy(resolved(draw(st.sampled_from(list(RECIPES)))))
    change(draw, tree)
    return tree


def change(draw, tree):
    """Change a tree in up to three places."""
    for _ in range(draw(st.sampled_from([1, 1, 1, 2, 3]))):
        locs = list(places(tree))
        if locs:
            *above, key = draw(st.sampled_from(locs))
            draw(st.sampled_from(CHANGES))(draw, tree, at(tree, above), key)


def bounded(examples):
    """The same examples in every run."""
    return settings(
        max_examples=examples,
        derandomize=True,
        deadline=None,
        database=None,
        suppress_health_check=list(HealthCheck),
    )


@pytest.fixture(scope="module")
def folder():
    with tempfile.TemporaryDirectory() as name:
        yield Path(name)


def is_told(error):
    return error.faults and all(
        fault.endswith((".", "?")) and "\n" not in fault for fault in error.faults
    )


def taken_or_told(folder, tree):
    """Load a recipe; what is taken is the same when it is written and read again."""
    path, again = folder / "r.yaml", folder / "again.yaml"
    path.write_text(yaml_source.dump(tree), encoding="utf-8")
    try:
        loaded = load_recipe(str(path))
        runs = plan_runs(loaded, str(path))
    except UserError as error:
        assert is_told(error)
        return
    again.write_text(resolved_yaml(loaded.recipe), encoding="utf-8")
    held = load_recipe(str(again))
    assert resolved_yaml(held.recipe) == again.read_text(encoding="utf-8")
    assert held.keys == loaded.keys
    for stage in [stage for run in runs for stage in run.loaded.stages] or loaded.stages:
        try:
            training_arguments(stage, 1, folder / "run")
        except UserError as error:
            assert is_told(error)


@bounded(60)
@given(tree=changed())
def test_a_changed_recipe_is_taken_or_told(folder, tree):
    taken_or_told(folder, tree)


@pytest.mark.all_faults
@bounded(5_000)
@given(tree=changed())
def test_many_changed_recipes_are_taken_or_told(folder, tree):
    taken_or_told(folder, tree)


@pytest.fixture(scope="module")
def stand_ins(tiny, folder):  # noqa: F811
    """The small recipes as they are written, on tiny models and data."""

    def small(name):
        tree = shrink(extends.load(RECIPES[name]).data, tiny) | {"cache_dir": str(folder / "cache")}
        tree.pop("sweep", None)  # A rehearsal of each run.
        for args in (tree.get("args", {}), *(stage.get("args", {}) for stage in tree["stages"])):
            args.pop("per_device_train_batch_size", None)
            args.pop("bf16", None)
        tree["args"] = tree.get("args", {}) | {"use_cpu": True}
        return tree

    return {name: small(name) for name in SMALL}


def goes_or_told(folder, stand_ins, capsys, data):
    """Rehearse a changed recipe; nothing is left of that."""
    tree = copy.deepcopy(stand_ins[data.draw(st.sampled_from(SMALL))])
    change(data.draw, tree)
    (folder / "r.yaml").write_text(yaml_source.dump(tree), encoding="utf-8")
    options = ["--dry-run", "--output-dir", str(folder / "run")]
    status = main([str(folder / "r.yaml"), *options])
    told = capsys.readouterr().err
    assert status in (0, 2, 3), told
    assert "Traceback" not in told and not (folder / "run").exists()


@bounded(4)
@given(data=st.data())
def test_a_changed_recipe_goes_on_stand_ins_or_is_told(folder, stand_ins, capsys, data):
    goes_or_told(folder, stand_ins, capsys, data)


@pytest.mark.all_faults
@bounded(300)
@given(data=st.data())
def test_many_changed_recipes_go_on_stand_ins_or_are_told(folder, stand_ins, capsys, data):
    goes_or_told(folder, stand_ins, capsys, data)
