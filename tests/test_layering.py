"""The floors of the package: imports go down only, and files are named for what lives there."""

import ast
from collections import Counter
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[1] / "st_jtcse"
FILES = sorted(PACKAGE.rglob("*.py"))
# From the ground up; a module that stands alone is of the ground.
FLOORS = [
    {"towers"},
    {"modules"},
    {"losses", "data"},
    {"diagnostics", "evaluation"},
    {"reports"},
    {"hub"},
    {"recipe"},
    {"training"},
    # Found by the engine at run time, as those of other packages are: it names none of them.
    {"abilities"},
    {"cli"},
    # Of the papers alone: one command above all the others.
    {"reproduce"},
]
# Stands above all floors, as another package would, and has the same floors in it.
PAPERS = "papers"
# The package's own entrance stands above the towers, and nothing may lean on it.
ENTRANCE = {"__init__", "registration"}
GROUND = {path.stem for path in PACKAGE.glob("*.py")} - ENTRANCE
# Rooms of one floor that may not know each other.
APART = [{"losses", "data"}]
SAY_NOTHING = {
    "strict", "slots", "values", "guards", "checks", "inputs", "components", "clock",
    "utils", "helpers", "common", "misc",
}  # fmt: skip


def name_of(path):
    return str(path.relative_to(PACKAGE))


def room_of(path):
    return room_named(module_of(path))


def room_named(module):
    """The room of a module by its name: `losses`, or `papers.losses`."""
    parts = module.split(".")[1:] or ["__init__"]
    return ".".join(parts[:2] if parts[0] == PAPERS else parts[:1])


def height(room):
    if room in GROUND:
        return 0
    above, _, floor = room.rpartition(".")
    own = 1 + next((number for number, floors in enumerate(FLOORS) if floor in floors), 0)
    return own + (len(FLOORS) + 1 if PAPERS in (above, floor) else 0)


def imported_modules(path):
    """The modules of the package that a file imports anywhere, also inside functions and for types
    alone.
    """
    names = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module and not node.level:
            # `from st_jtcse.reports import pictures` names a module, `from st_jtcse.errors import
            # UserError` does not.
            longer = {f"{node.module}.{name.name}" for name in node.names}
            modules = {name for name in longer if is_module(name)}
            names |= modules if len(modules) == len(longer) else modules | {node.module}
        elif isinstance(node, ast.Import):
            names |= {name.name for name in node.names}
    return {name for name in names if name.startswith("st_jtcse.")}


def is_module(name):
    place = PACKAGE.parent.joinpath(*name.split("."))
    return place.with_suffix(".py").is_file() or place.is_dir()


def imported_rooms(path):
    return {room_named(name) for name in imported_modules(path)}


@pytest.mark.parametrize("path", FILES, ids=name_of)
def test_imports_go_down_only(path):
    own = room_of(path)
    if own in ENTRANCE:
        assert imported_rooms(path) <= ENTRANCE | {"towers"}
        return
    for other in imported_rooms(path) - {own}:
        assert height(other) <= height(own), f"{own} imports {other}"
        assert {own, other} not in APART, f"{own} imports {other}"


def module_of(path):
    parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


@pytest.mark.parametrize(
    ("name", "imports"), [(room_of, imported_rooms), (module_of, imported_modules)]
)
def test_no_import_goes_in_a_circle(name, imports):
    """Neither between rooms nor among modules, also not by an import inside a function."""
    leans_on = {}
    for path in FILES:
        if room_of(path) not in ENTRANCE:
            leans_on.setdefault(name(path), set()).update(imports(path) - {name(path)})
    while leans_on:
        done = {one for one, others in leans_on.items() if not others & leans_on.keys()}
        assert done, f"a circle: {leans_on}"
        for one in done:
            del leans_on[one]


@pytest.mark.parametrize(
    "path", sorted(PACKAGE.glob("towers/modeling_*.py")), ids=lambda path: path.name
)
def test_modelling_files_travel_without_the_package(path):
    source = ast.parse(path.read_text())
    roots = set()
    for node in ast.walk(source):
        if isinstance(node, ast.ImportFrom):
            # transformers copies along what a modelling file imports from beside it.
            if node.level == 1:
                assert path.with_name(f"{node.module}.py").is_file() and node.module.startswith(
                    "modeling_"
                )
                continue
            assert node.level == 0
            roots.add(node.module.split(".")[0])
        elif isinstance(node, ast.Import):
            roots |= {name.name.split(".")[0] for name in node.names}
    assert roots <= {
        "__future__",
        "collections",
        "contextlib",
        "inspect",
        "os",
        "dataclasses",
        "typing",
        "torch",
        "transformers",
    }


@pytest.mark.parametrize("path", sorted((PACKAGE / PAPERS).rglob("*.py")), ids=name_of)
def test_papers_use_public_names_alone(path):
    """What they import of the rest has no name that begins with `_`, nor has its module."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("st_jtcse"):
            imported = [*node.module.split("."), *(name.name for name in node.names)]
            assert not [part for part in imported if part.startswith("_")]


@pytest.mark.parametrize("path", FILES, ids=name_of)
def test_files_are_named_for_what_they_hold(path):
    assert path.stem not in SAY_NOTHING and path.parent.name not in SAY_NOTHING


def test_no_two_modules_have_one_name():
    stems = [path.stem for path in FILES if path.stem != "__init__"]
    # The rooms of the papers are called as those that they add to.
    rooms = {path.parent.name for path in FILES if path.stem == "__init__"} - {PACKAGE.name}
    assert [name for name, count in Counter([*stems, *rooms]).items() if count > 1] == []
