"""What the site shows beside the pages of docs/: files of the root, and the reference made from
code.

mkdocs calls the functions whose names begin with `on_`, and Griffe the class at the end.
"""

import argparse
import importlib
import json
import os.path
import re
import tomllib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import griffe
from mkdocs.structure.files import File

ROOT = Path(__file__).parents[1]
# Pages that stand outside docs/, by their place on the site.
OUTSIDE = {
    "README.md": "index.md",
    "ARCHITECTURE.md": "architecture.md",
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "benchmarks/README.md": "benchmarks.md",
}
PUBLIC = (
    "st_jtcse.losses",
    "st_jtcse.modules",
    "st_jtcse.towers",
    "st_jtcse.evaluation",
    "st_jtcse.papers.losses",
    "st_jtcse.papers.evaluation",
    "st_jtcse.papers.diagnostics",
)


def on_files(files: Any, config: Any) -> Any:
    """Add the pages that docs/ does not hold."""
    pages = {place: (ROOT / name).read_text(encoding="utf-8") for name, place in OUTSIDE.items()}
    pages |= {
        "recipe-keys.md": "\n".join(recipe_keys()),
        "commands.md": "\n".join(commands()),
        "api.md": api(),
    }
    for path in (ROOT / "docs" / "notebooks").glob("*.ipynb"):
        pages[f"notebooks/{path.stem}.md"] = notebook(json.loads(path.read_text(encoding="utf-8")))
    for place, text in pages.items():
        files.append(File.generated(config, place, content=text))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Turn links that are right in the repository into links that are right on the site."""
    place = page.file.src_uri
    source = next((name for name, uri in OUTSIDE.items() if uri == place), f"docs/{place}")

    def moved(link: re.Match[str]) -> str:
        text, target, anchor = link.groups()
        name = os.path.normpath(os.path.join(os.path.dirname(source), target))
        uri = OUTSIDE.get(name, name.removeprefix("docs/")).replace(".ipynb", ".md")
        if name in OUTSIDE or name.startswith("docs/"):
            return f"[{text}]({os.path.relpath(uri, os.path.dirname(place) or '.')}{anchor or ''})"
        # Code has no page.
        return text if (ROOT / name).exists() else link[0]

    return re.sub(r"\[([^\[\]]*)\]\((?!\w+:)([^()#\s]+)(#[^()\s]*)?\)", moved, markdown)


def on_page_content(html: str, **_: Any) -> str:
    """Keep each word of inline code on one line, where a browser would break it at its hyphens."""

    def whole(code: re.Match[str]) -> str:
        words = [f"<span>{word}</span>" for word in code[1].split()]
        return f"<code>{' '.join(words)}</code>"

    # A block's code has a span before it.
    return re.sub(r"(?<!</span>)<code>([^<]+)</code>", whole, html)


def table(heads: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> Iterator[str]:
    """Yield the lines of a table; nothing without rows."""
    if rows := list(rows):
        for row in (heads, ("---",) * len(heads), *rows):
            cells = [cell.replace("|", "\\|").replace("<", "&lt;") for cell in row]
            yield f"| {' | '.join(cells)} |"
    yield ""


def notebook(recorded: dict[str, Any]) -> str:
    """Return the page of a notebook: its texts, its code, and what that printed."""
    parts = []
    for cell in recorded["cells"]:
        source = "".join(cell["source"])
        if cell["cell_type"] == "markdown":
            parts.append(source)
            continue
        kind = "bash" if source.startswith("!") else "python"
        parts.append(f"```{kind}\n{source.removeprefix('!')}\n```")
        printed = "".join(line for output in cell["outputs"] for line in output["text"])
        if printed:
            parts.append(f"```text\n{printed.rstrip()}\n```")
    return "\n\n".join(parts)


def recipe_keys() -> Iterator[str]:
    """Yield the page of a recipe's keys: every block of the schema with its keys, kinds, defaults
    and meanings.
    """
    from st_jtcse.recipe.schema import Recipe

    schema = Recipe.model_json_schema()
    yield (
        "# Recipe keys\n\nEvery key that a recipe may have. [Recipes](recipes.md) says how they "
        "work together.\n"
    )
    for name, block in ({"Recipe": schema} | schema["$defs"]).items():
        yield f"## {name.removesuffix('Spec')}\n\n{block.get('description', '')}\n"
        needed = block.get("required", [])
        rows = [
            (
                f"`{key}`",
                kind(field),
                "required" if key in needed else default(field),
                field.get("description", ""),
            )
            for key, field in block["properties"].items()
        ]
        yield from table(("key", "value", "default", "meaning"), rows)


def kind(schema: dict[str, Any]) -> str:
    """Return what a value of a JSON schema is, in words; null, for a key left out, is not said."""
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2].removesuffix("Spec")
        return f"[{name}](#{name.lower()})"
    if several := schema.get("anyOf"):
        return " or ".join(kind(one) for one in several if one.get("type") != "null")
    if "const" in schema or "enum" in schema:
        return ", ".join(f"`{value}`" for value in schema.get("enum", [schema.get("const")]))
    if "prefixItems" in schema:
        return f"[{', '.join(kind(item) for item in schema['prefixItems'])}]"
    inner = schema.get("items") or schema.get("additionalProperties")
    of = f" of {kind(inner)}" if isinstance(inner, dict) and inner else ""
    called = {
        "array": "list",
        "object": "mapping",
        "string": "text",
        "null": "text",
        "boolean": "true, false",
    }
    found = schema.get("type", "any")
    return called.get(found, found) + of


def default(field: dict[str, Any]) -> str:
    """Return a key's default as a recipe writes it; null, for a key left out, is not said."""
    return "" if field.get("default") is None else f"`{json.dumps(field['default'])}`"


def commands() -> Iterator[str]:
    """Yield the page of the commands, from their parsers."""
    scripts = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"][
        "scripts"
    ]
    statuses = (
        "0 done, 2 your input is at fault, 3 a data set cannot be had, 130 interrupted, 1 "
        "anything else"
    )
    yield f"# Commands\n\nExit status: {statuses}.\n"
    for name, entry in scripts.items():
        yield from command(name, importlib.import_module(entry.partition(":")[0])._parser())


def command(name: str, parser: argparse.ArgumentParser) -> Iterator[str]:
    """Yield the part of one command, and those of the commands in it."""
    yield f"## {name}\n\n{parser.description or ''}\n"
    inner = next(
        (action for action in parser._actions if isinstance(action, argparse._SubParsersAction)),
        None,
    )
    shown = (action for action in parser._actions if action is not inner and action.dest != "help")
    yield from table(("argument", "what it does"), [told(parser, action) for action in shown])
    if parser.epilog:
        yield f"{parser.epilog}\n"
    for sub, own in inner.choices.items() if inner else ():
        yield from command(f"{name} {sub}", own)


def told(parser: argparse.ArgumentParser, action: argparse.Action) -> tuple[str, str]:
    """Return an argument as it is written, and its help with the values that it takes."""
    help_of = parser._get_formatter()
    value = (
        ""
        if action.nargs == 0 or action.choices
        else help_of._format_args(action, action.dest.upper())
    )
    choices = (
        f" ({', '.join(f'`{choice}`' for choice in action.choices)})" if action.choices else ""
    )
    written = " ".join(filter(None, [", ".join(action.option_strings), value]))
    return f"`{written}`", help_of._expand_help(action) + choices


def api() -> str:
    """Return the page of the public names, which mkdocstrings fills."""
    parts = ["# Python API\n"]
    for module in PUBLIC:
        names = importlib.import_module(module).__all__
        parts += [f"## {module}\n", *(f"::: {module}.{name}\n" for name in names)]
    return "\n".join(parts)


class RestructuredText(griffe.Extension):
    """Writes what docstrings hold of reStructuredText as Markdown: equations, tables, roles,
    examples.
    """

    def on_instance(self, *, obj: griffe.Object, **_: Any) -> None:
        """Rewrite the docstring of an object, before its sections are read."""
        if obj.docstring is None:
            return
        text = re.sub(r":math:(`[^`]+`)", r"\1", obj.docstring.value)
        text = re.sub(r":\w+:`~?(?:[\w.]+\.)?(\w+)`", r"`\1`", text)
        text = re.sub(r"(?m)^( *)\.\. math:: *(.+)$", r"\1```tex\n\1\2\n\1```", text)
        text = re.sub(
            r"(?m)^( *)::\n\n((?:\1    .*\n|\n)+)", r"\1```python\n\2\n\1```\n\n", text + "\n"
        )
        text = re.sub(r"(?m)((?:^ +[+|].*\n?)+)", fenced, text)
        obj.docstring.value = text


def fenced(drawn: re.Match[str]) -> str:
    """Return a table that is drawn with signs as a block of code."""
    edge = re.match(" *", drawn[0])[0]
    return f"{edge}```text\n{drawn[0].rstrip()}\n{edge}```\n"
