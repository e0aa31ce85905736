"""The site: every page of it and every link, the reference that is made from code, and nothing
fetched.
"""

import html
import importlib
import json
import re
from pathlib import Path

import pytest
from mkdocs.commands.build import build
from mkdocs.config import load_config

from st_jtcse.cli.train import _parser
from st_jtcse.recipe.schema import ModelSpec, Recipe, StageSpec

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """The whole site; a link or an anchor that leads nowhere is an error."""
    folder = tmp_path_factory.mktemp("site")
    build(load_config(str(ROOT / "mkdocs.yml"), site_dir=str(folder), strict=True))
    return folder


def words(page):
    """What a reader sees of a page."""
    return " ".join(html.unescape(re.sub("<[^>]+>", "", page.read_text(encoding="utf-8"))).split())


def test_the_reference_holds_every_key_option_and_public_name(site):
    keys, commands, api = (
        words(site / f"{page}.html") for page in ("recipe-keys", "commands", "api")
    )
    for block in (Recipe, StageSpec, ModelSpec):
        for key, field in block.model_fields.items():
            assert f" {key} " in keys and field.description.replace("`", "") in keys, key
    for action in _parser()._actions:
        assert set(action.option_strings) - {"-h", "--help"} <= set(commands.split())
    for room in ("losses", "modules", "evaluation", "papers.losses", "papers.diagnostics"):
        for name in importlib.import_module(f"st_jtcse.{room}").__all__:
            assert f" st_jtcse.{room}.{name} " in api, name


def test_pages_of_the_root_are_found_and_their_links_lead_to_the_site(site):
    start = (site / "index.html").read_text(encoding="utf-8")
    for page in ("adapt", "recipes", "benchmarks", "contributing"):
        assert f'href="{page}.html"' in start and (site / f"{page}.html").is_file()
    found = json.loads((site / "search" / "search_index.json").read_text(encoding="utf-8"))
    assert {"Which loss for your data", "Reliability", "Benchmarks"} <= {
        page["title"] for page in found["docs"]
    }


def test_notebooks_are_pages_with_what_their_cells_printed(site):
    for name in ("adapt", "jtcse", "pairs", "search"):
        printed = words(site / "notebooks" / f"{name}.html")
        assert "Best model: runs/mine/" in printed, name
        page = {"pairs": "ranking"}.get(name, name)
        told = (site / f"{page}.html").read_text(encoding="utf-8")
        assert f'href="notebooks/{name}.html">A notebook' in told, name


def test_no_page_fetches_anything(site):
    for page in site.rglob("*.html"):
        for tag in re.findall(
            r"<(?:script|link|img|iframe)\b[^>]*>", page.read_text(encoding="utf-8")
        ):
            assert not re.search(r'(?:src|href)="(?:https?:)?//', tag), f"{page.name}: {tag}"


def test_the_words_of_inline_code_are_kept_whole(site):
    page = (site / "troubleshooting.html").read_text(encoding="utf-8")
    assert "<code><span>st-train</span> <span>--list</span></code>" in page
    # Blocks are as they were: what one copies has no marks in it.
    start = (site / "index.html").read_text(encoding="utf-8")
    assert "<span>st-train</span> <span>quickstart" not in start
    assert "inline-block" in (site / "site.css").read_text(encoding="utf-8")
