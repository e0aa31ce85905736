"""Bundled files are found in a wheel and beside a checkout, and recipes by glob."""

from pathlib import Path

import pytest

from st_jtcse import bundled


@pytest.fixture
def package(tmp_path, monkeypatch):
    """A package folder with files beside it, as in a checkout."""
    package = tmp_path / "st_jtcse"
    package.mkdir()
    monkeypatch.setattr(bundled, "__file__", str(package / "bundled.py"))
    return package


def recipe(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("name: x\n")
    return path


def test_checkout_folders_lie_beside_the_package(package):
    assert bundled.folder("recipes") == package.parent / "recipes"
    assert bundled.folder("model_cards") == package.parent / "model_cards"


def test_the_wheel_folder_comes_first(package):
    inside = package / "bundled_data" / "recipes"
    recipe(inside / "a.yaml")
    recipe(package.parent / "recipes" / "b.yaml")
    assert bundled.folder("recipes") == inside
    assert bundled.recipes() == {"a": inside / "a.yaml"}


def test_recipes_are_named_by_stem_at_any_depth(package):
    root = package.parent / "recipes"
    deep, flat = recipe(root / "jtcse" / "bert.yaml"), recipe(root / "quickstart.yaml")
    recipe(root / "jtcse" / "README.md")
    assert bundled.recipes() == {"bert": deep, "quickstart": flat}
    assert list(bundled.recipes()) == ["bert", "quickstart"]


def test_two_recipes_of_one_name_are_a_defect(package):
    root = package.parent / "recipes"
    recipe(root / "simcse" / "bert.yaml")
    recipe(root / "jtcse" / "bert.yaml")
    with pytest.raises(
        RuntimeError, match=r"two bundled recipes are called 'bert': .*jtcse.* and .*simcse"
    ):
        bundled.recipes()
