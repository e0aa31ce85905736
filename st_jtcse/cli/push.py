"""st-push: a saved model to the Hub."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from st_jtcse.cli import console
from st_jtcse.cli.exit_status import command
from st_jtcse.reports.table import Table


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="st-push",
        description="Push a saved model to the Hugging Face Hub in one commit, with its results in "
        "its card.",
        epilog="Example: st-push runs/quickstart/joint me/my-first-twin --dry-run",
    )
    parser.add_argument("folder", type=Path, metavar="FOLDER", help="the saved model")
    parser.add_argument(
        "repo", metavar="REPO", help="owner/name on the Hub; a name alone is one of your account"
    )
    parser.add_argument(
        "--public", action="store_true", help="make a new repository public (default: private)"
    )
    parser.add_argument(
        "--collection", metavar="TITLE", help="add the model to this collection of the same owner"
    )
    parser.add_argument("--force", action="store_true", help="replace a model of another kind")
    parser.add_argument("--dry-run", action="store_true", help="list files and sizes, send nothing")
    return parser


@console.quiet_libraries()
def _run(options: argparse.Namespace) -> None:
    from st_jtcse.hub.model_files import check_whole, files_to_push
    from st_jtcse.hub.upload import check_repo, push

    if options.dry_run:
        check_repo(options.repo)
        files = files_to_push(options.folder)
        check_whole(options.folder, files)
        sizes = [*files.sent.items(), ("in all", sum(files.sent.values()))]
        rows = [(name, f"{size:,}") for name, size in sizes]
        console.show(Table(["file", "bytes"], rows, f"{options.repo} (nothing is sent)"))
        if files.note:
            console.err.print(files.note)
        return
    how = {"private": not options.public, "collection": options.collection, "force": options.force}
    console.say(f"Pushed to {push(options.folder, options.repo, **how)}")


main = command(_parser, _run, interrupted="to send what has not arrived, repeat the command")

if __name__ == "__main__":
    sys.exit(main())
