"""The floors of the package: imports go down only, files stay small and are named for what lives there."""

import ast
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[1] / "st_jtcse"
FLOORS = [
    "errors",
    "wording",
    "atomic",
    "hashing",
    "embedding_hash",
    "processes",
    "bundled",
    "embedded",
    "towers",
    "modules",
    "losses",
    "data",
    "diagnostics",
    "evaluation",
    "reports",
    "hub",
    "training",
    "cli",
]
# One floor may not import its neighbours here either.
SIDEWAYS = {"losses", "data"}
FILES = sorted(PACKAGE.rglob("*.py"))


def floor_of(path):
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def imported_floors(path):
    for node in ast.walk(ast.parse(path.read_text())):
        modules = []
        if isinstance(node, ast.ImportFrom) and node.module and not node.level:
            modules = [node.module]
            if node.module == "st_jtcse":
                modules = [f"st_jtcse.{name.name}" for name in node.names]
        elif isinstance(node, ast.Import):
            modules = [name.name for name in node.names]
        for module in modules:
            if module.startswith("st_jtcse."):
                yield module.split(".")[1]


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_imports_go_down_only(path):
    own = floor_of(path)
    if own == "__init__":
        assert set(imported_floors(path)) <= {"towers"}
        return
    for other in set(imported_floors(path)) - {own}:
        assert FLOORS.index(other) < FLOORS.index(own), f"{own} imports {other}"
        assert not {own, other} <= SIDEWAYS, f"{own} imports {other}"


@pytest.mark.parametrize("path", sorted(PACKAGE.glob("towers/modeling_*.py")), ids=lambda path: path.name)
def test_a_modelling_file_travels_alone(path):
    source = ast.parse(path.read_text())
    roots = set()
    for node in ast.walk(source):
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0
            roots.add(node.module.split(".")[0])
        elif isinstance(node, ast.Import):
            roots |= {name.name.split(".")[0] for name in node.names}
    assert roots <= {"__future__", "collections", "os", "dataclasses", "typing", "torch", "transformers"}


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_files_are_small_and_named_for_what_they_hold(path):
    assert len(path.read_text().splitlines()) <= 420
    assert path.stem not in {"utils", "helpers", "common", "misc"}
