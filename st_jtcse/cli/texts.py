"""st-train texts: a folder of documents as a file of passages."""

from __future__ import annotations

import argparse
import json
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path

from st_jtcse.atomic import check_new_file, write_new
from st_jtcse.cli import console
from st_jtcse.cli.arguments import add_count, faults_of
from st_jtcse.cli.exit_status import command


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="st-train texts",
        description="Cut documents (.md, .txt, .html, .pdf, .docx, .rst) into passages: by their "
        "headings, then by size. Each row has its title, the headings it stands below and its "
        "file.",
        epilog="Example: st-train texts docs/ -o search/corpus.jsonl",
    )
    parser.add_argument(
        "place", type=Path, metavar="FOLDER", help="a folder, a wildcard in quotes, or one document"
    )
    parser.add_argument(
        "-o", "--output", type=Path, required=True, metavar="FILE", help="the new JSONL file"
    )
    add_count(parser, "--size", 1000, "most characters of a passage")
    return parser


def _run(options: argparse.Namespace) -> None:
    # After the cheap answers: the libraries behind the data take seconds to import.
    from st_jtcse.data.passages import Report, read_passages

    with faults_of("--output"):
        check_new_file(options.output)
    report = Report(options.place)

    def lines() -> Iterator[bytes]:
        for passage in read_passages(options.place, options.size, report):
            yield json.dumps(passage.row, ensure_ascii=False).encode() + b"\n"

    options.output.parent.mkdir(parents=True, exist_ok=True)
    write_new(options.output, lines())
    for line in report.lines:
        console.say(line)
    console.say(f"Wrote {options.output}.")
    train = f"st-train adapt --set data.train={shlex.quote(str(options.output))}"
    console.say(f"Next: {train} --set model=NAME --dry-run")


main = command(_parser, _run, interrupted="nothing was written")

if __name__ == "__main__":
    sys.exit(main())
