"""Makes what docs/ shows of real runs: the notebooks, and terminal.md's recordings of a terminal.

`python docs/recordings.py` writes all anew, with names (`adapt`, `terminal`) only those. A notebook
takes some minutes of one core; the terminals take ten of two, an empty folder to run in, and pyte,
a terminal in memory (`pip install pyte`).

A notebook is written as Python in `notebooks/NAME.py`: `# %% [markdown]` begins a cell of text,
`# %%` one of code, and behind `# !` stands a command.
"""

import argparse
import contextlib
import fcntl
import io
import json
import os
import pty
import re
import shlex
import struct
import subprocess
import sys
import tempfile
import termios
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pyte

DOCS = Path(__file__).parent
NOTEBOOKS = sorted((DOCS / "notebooks").glob("*.py"))
TRAIN = [sys.executable, "-m", "st_jtcse.cli.train"]
COMMANDS = {"st-train": TRAIN, "st-eval": [sys.executable, "-m", "st_jtcse.cli.eval"]}
# Where a run keeps teachers' vectors by default; recordings begin without any.
CACHE = "~/.cache/huggingface"
# What changes with every run.
TIMES = re.compile(
    r"training takes about .*\n|(?:(?<= steps)|(?<=not trained)), \d+ s\b|(?<=: done) in \d+ s\b"
)
ROWS = 200  # More than a run has lines: nothing scrolls.


def recorded(command: str, columns: int, shown: re.Pattern[str]) -> tuple[list[str], list[str]]:
    """Run a command in a terminal; return the last lines when something is first shown, and all at
    the end.
    """
    import pyte

    screen = pyte.Screen(columns, ROWS)
    stream = pyte.ByteStream(screen)
    process, terminal = pty.fork()
    if process == 0:
        os.environ["TERM"] = "xterm-256color"
        os.execv(TRAIN[0], [*TRAIN, *shlex.split(command)[1:]])
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, columns, 0, 0))
    during: list[str] = []
    with contextlib.suppress(OSError):  # As the end of a terminal is told.
        while read := os.read(terminal, 65536):
            stream.feed(read)
            if not during and shown.search("\n".join(screen.display)):
                during = lines(screen)
    assert os.waitpid(process, 0)[1] == 0, "\n".join(lines(screen))
    return during[-4:], lines(screen)


def lines(screen: "pyte.Screen") -> list[str]:
    """Return what a screen shows."""
    return anywhere("\n".join(line.rstrip() for line in screen.display)).rstrip().splitlines()


def anywhere(text: str) -> str:
    """Return a text without the places of this machine."""
    return text.replace(str(Path.home()), "~").replace(os.getcwd(), ".")


def cells_of(source: str) -> list[dict[str, Any]]:
    """Return the cells of a notebook that is written as Python; none has run yet."""
    cells = []
    for at, part in enumerate(re.split(r"^# %%", source, flags=re.MULTILINE)[1:]):
        head, _, body = part.partition("\n")
        cell: dict[str, Any] = {"cell_type": "code", "id": f"cell-{at}", "metadata": {}}
        if head == " [markdown]":
            cell["cell_type"] = "markdown"
        if head or body.startswith("# !"):
            body = re.sub(r"^# ?", "", body, flags=re.MULTILINE)
        cells.append(cell | {"source": body.strip("\n").splitlines(keepends=True)})
    return cells


def record_notebook(written: Path) -> None:
    """Run a notebook's cells in an empty folder, and write it with what they print, without the
    times.
    """
    cells, names = cells_of(written.read_text(encoding="utf-8")), {}
    code = [cell for cell in cells if cell["cell_type"] == "code"]
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        for number, cell in enumerate(code, 1):
            said = TIMES.sub("", said_by("".join(cell["source"]), names))
            output = {"output_type": "stream", "name": "stdout"}
            output["text"] = said.splitlines(keepends=True)
            cell |= {"execution_count": number, "outputs": [output]}
    python = {"display_name": "Python 3", "language": "python", "name": "python3"}
    whole = {
        "cells": cells,
        "metadata": {"kernelspec": python, "language_info": {"name": "python"}},
        "nbformat": 4,
        "nbformat_minor": 5,
    }
    text = json.dumps(whole, indent=1, ensure_ascii=False)
    written.with_suffix(".ipynb").write_text(text + "\n", encoding="utf-8")


def said_by(code: str, names: dict[str, Any]) -> str:
    """Run a cell, a command or Python with the names of those before it; return what it prints."""
    if not code.startswith("!"):
        with contextlib.redirect_stdout(io.StringIO()) as out:
            exec(code, names)
        return anywhere(out.getvalue())
    command, *options = shlex.split(code[1:].replace("\\\n", ""))
    cache = os.path.join(os.getcwd(), "cache")
    done = subprocess.run(
        [*COMMANDS[command], *options],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={**os.environ, "HF_HOME": cache},
    )
    assert done.returncode == 0, done.stdout
    return anywhere(done.stdout.replace(cache, CACHE))


def record_terminals(path: Path) -> None:
    """Run the page's commands in terminals of the widths that it names, and put what they show into
    its blocks.
    """
    text = path.read_text(encoding="utf-8")
    for width, stage in (("80", "2/2 encoder_2"), ("100", "1/1 encoder_1")):
        blocks = (
            rf"(<!-- {width} columns: ([^\n]*) "
            rf"-->\n\n```text\n).*?(\n```\n.*?```text\n).*?(\n```\n)"
        )
        found = re.search(blocks, text, re.DOTALL)
        before, command, between, after = found.groups()
        during, end = recorded(command, int(width), re.compile(rf"{stage}.* [1-9]\d*/.* dev "))
        made = [before, "\n".join(during), between, "\n".join([f"$ {command}", *end]), after]
        text = text.replace(found[0], "".join(made))
    path.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.partition("\n\n")[0])
    known = [*(path.stem for path in NOTEBOOKS), "terminal"]
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(known)}")
    asked = parser.parse_args().names or known
    for path in NOTEBOOKS:
        if path.stem in asked:
            record_notebook(path)
    if "terminal" in asked:
        record_terminals(DOCS / "terminal.md")
