"""Makes what docs/ shows of real runs: the outputs of the notebook, and terminal.md's recordings of
a terminal.

In an empty folder, `python .../docs/recordings.py` writes both anew. It needs pyte, a terminal in
memory (`pip install pyte`), about ten minutes on two cores, and changes nothing else.
"""

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
import termios
from pathlib import Path

import pyte

DOCS = Path(__file__).parent
TRAIN = [sys.executable, "-m", "st_jtcse.cli.train"]
ROWS = 200  # More than a run has lines: nothing scrolls.


def recorded(command: str, columns: int, shown: re.Pattern[str]) -> tuple[list[str], list[str]]:
    """Run a command in a terminal; return the last lines when something is first shown, and all at
    the end.
    """
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


def lines(screen: pyte.Screen) -> list[str]:
    """Return what a screen shows."""
    return anywhere("\n".join(line.rstrip() for line in screen.display)).rstrip().splitlines()


def anywhere(text: str) -> str:
    """Return a text without the places of this machine."""
    return text.replace(str(Path.home()), "~").replace(os.getcwd(), ".")


def run_notebook(path: Path) -> None:
    """Run a notebook's cells and keep what they print, without the times, which change with every
    run.
    """
    notebook, names, number = json.loads(path.read_text(encoding="utf-8")), {}, 0
    for cell in notebook["cells"]:
        if cell["cell_type"] != "code":
            continue
        code, number = "".join(cell["source"]), number + 1
        if code.startswith("!st-train "):
            asked = [*TRAIN, *shlex.split(code.replace("\\\n", ""))[1:]]
            said = subprocess.run(
                asked, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=True
            ).stdout
        else:
            with contextlib.redirect_stdout(io.StringIO()) as out:
                exec(code, names)
            said = out.getvalue()
        said = re.sub(r"training takes about .*\n|(?<= steps), \d+ s\b", "", anywhere(said))
        output = {"output_type": "stream", "name": "stdout", "text": said.splitlines(keepends=True)}
        cell |= {"execution_count": number, "outputs": [output]}
    path.write_text(json.dumps(notebook, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


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
    run_notebook(DOCS / "notebooks" / "adapt.ipynb")
    record_terminals(DOCS / "terminal.md")
