"""Plays the first hour of three users: the commands of README and of the pages that it leads to, on
small files and a few steps, each as a process of its own.

    python docs/first_hour.py [--only WORD] [--folder DIR]

It tells each command's seconds and exit status: nine minutes in all on a core that others share,
five of them README's. `--only README`, `--only engineer` and the like play one page or user. The
exit status is 1 where a command ends with another status than 0 or prints a traceback, or where a
page links to what is not there.
"""

import argparse
import json
import random
import re
import shlex
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np

ROOT = Path(__file__).parents[1]
PAGES = ["README.md", "docs/adapt.md", "docs/which-loss.md", "docs/ranking.md"]
# Commands that the pages describe in words.
OF_USERS = {
    "support engineer": [
        "st-train --list search",
        "st-train init faq.yaml --have questions --data faq.csv --columns Question,Answer",
        "st-train faq.yaml --dry-run",
    ],
    "data scientist": [
        "st-train init intents.yaml --have labels --data intents.csv --dev intents.csv",
        "st-train intents.yaml --set args.per_device_train_batch_size=8 --output-dir runs/intents",
        "st-eval embedded runs/intents/trained --data intents.csv "
        "--columns text=Utterance,label=Intent",
    ],
    "researcher": [
        "st-train --list jtcse",
        "st-train --show jtcse-mini",
        "st-train --copy jtcse-mini mine.yaml",
        "st-train mine.yaml --dry-run",
    ],
}
FEW = ["args.max_steps=2", "args.use_cpu=true", "cache_dir=cache"]
# Of the stages that have steps of their own.
FEWER = {
    "adapt": "stages.distilled.args.max_steps=2",
    "quickstart": "stages.joint.args.max_steps=2",
}
# What stands for something of the reader's.
OPEN = re.compile(r"\b(NAME|FILE|FOLDER|DIR|MODEL|WORD|RECIPE)\b|\.\.\.|path/to")
# A bundled recipe or file on which a command trains.
RUNS = re.compile(r"st-train (?!init|texts|--)")


def write_files(folder: Path) -> None:
    """Write what the pages call the reader's own files."""
    bundled = ROOT / "recipes" / "quickstart"
    sentences = (bundled / "sentences.txt").read_text(encoding="utf-8").splitlines()[:160]
    (folder / "my.txt").write_text("\n".join(sentences) + "\n", encoding="utf-8")
    pairs = (bundled / "pairs.test.jsonl").read_text(encoding="utf-8").splitlines()[:40]
    for name in ("my-pairs.jsonl", "my-dev.jsonl"):
        (folder / name).write_text("\n".join(pairs) + "\n", encoding="utf-8")
    shop = (ROOT / "recipes" / "shop" / "questions.jsonl").read_text(encoding="utf-8").splitlines()
    rows = [json.loads(line) for line in shop]
    faq = "".join(f'"{row["question"]}";"{row["answer"]}"\n' for row in rows)
    (folder / "faq.csv").write_text(f"Question;Answer\n{faq}", encoding="utf-8")
    intents = [f'"{row["question"]}","{row["topic"]}"\n' for row in rows]
    random.Random(0).shuffle(intents)
    (folder / "intents.csv").write_text(f"Utterance,Intent\n{''.join(intents)}", encoding="utf-8")
    labelled = "".join(
        json.dumps({"text": row["question"], "label": row["topic"]}) + "\n" for row in rows
    )
    (folder / "my-labelled.jsonl").write_text(labelled, encoding="utf-8")
    np.save(folder / "vectors.npy", np.random.default_rng(0).normal(size=(160, 16)))


def commands() -> Iterator[tuple[str, str]]:
    """Yield the commands of the pages, each once, and those of the users, with where they are."""
    seen: set[str] = set()
    for page in PAGES:
        text = (ROOT / page).read_text(encoding="utf-8")
        for block in re.findall(r"```bash\n(.*?)```", text, re.DOTALL):
            for line in block.splitlines():
                known = line.startswith(("st-train", "st-eval")) and not OPEN.search(line)
                if known and line not in seen:
                    seen.add(line)
                    yield page, line
    for user, lines in OF_USERS.items():
        for line in lines:
            yield user, line


def shortened(line: str) -> list[str]:
    """Return a command's words, with few steps where it trains."""
    line = line.replace("sentence-transformers/all-MiniLM-L6-v2", "embedded")
    command, *options = shlex.split(line, comments=True)
    changes = [*FEW, FEWER[options[0]]] if options[:1] and options[0] in FEWER else FEW
    sets = [part for change in changes for part in ("--set", change)] if RUNS.match(line) else []
    module = {"st-train": "st_jtcse.cli.train", "st-eval": "st_jtcse.cli.eval"}[command]
    return [sys.executable, "-m", module, *options, *sets]


def dead_links() -> list[str]:
    """Return the links of README and of all pages that lead to no file."""
    found = []
    for page in [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]:
        for target in re.findall(r"\]\((?!\w+:)([^)#]+)\)", page.read_text(encoding="utf-8")):
            if not (page.parent / target).exists():
                found.append(f"{page.relative_to(ROOT)}: {target} is not there")
    return found


def play(place: str, line: str, folder: Path) -> str | None:
    """Run one command where its page's others ran, and return what is wrong with it."""
    own = folder / Path(place).stem
    if not own.is_dir():
        own.mkdir(parents=True)
        write_files(own)
    began = time.perf_counter()
    done = subprocess.run(shortened(line), cwd=own, capture_output=True, text=True)
    seconds = time.perf_counter() - began
    sys.stdout.write(f"{seconds:6.1f} s  {done.returncode}  {place}: {line}\n")
    sys.stdout.flush()
    if done.returncode == 0 and "Traceback" not in done.stderr:
        return None
    return f"{place}: {line}\n{done.stderr[-2000:]}"


def main() -> int:
    """Play it."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n\n")[0])
    only = "commands that hold this word, or whose user or page does"
    parser.add_argument("--only", default="", metavar="WORD", help=only)
    parser.add_argument("--folder", type=Path, help="where to work; default: a temporary folder")
    options = parser.parse_args()
    faults = dead_links()
    with tempfile.TemporaryDirectory() as temporary:
        folder = options.folder or Path(temporary)
        for place, line in commands():
            if options.only in f"{place}: {line}":
                fault = play(place, line, folder)
                faults += [fault] if fault else []
    sys.stdout.write("\n".join(faults or ["No fault."]) + "\n")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
