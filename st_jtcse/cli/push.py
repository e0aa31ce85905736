"""st-push: a saved model to the Hub."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from st_jtcse.cli import console
from st_jtcse.cli.exit_status import command


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="st-push",
        description="Push a saved model to the Hugging Face Hub in one commit, the results beside it in its card.",
        epilog="Example: st-push runs/quickstart/joint me/my-first-twin --dry-run",
    )
    parser.add_argument("folder", type=Path, metavar="FOLDER", help="the saved model")
    parser.add_argument("repo", metavar="REPO", help="owner/name on the Hub; without an owner, yours")
    parser.add_argument("--public", action="store_true", help="make a new repository public (default: private)")
    parser.add_argument("--collection", metavar="TITLE", help="add the model to this collection of the same owner")
    parser.add_argument("--force", action="store_true", help="replace a model of another kind")
    parser.add_argument("--dry-run", action="store_true", help="list files and sizes, send nothing")
    return parser


@console.quiet_libraries()
def _run(options: argparse.Namespace) -> None:
    from st_jtcse.hub.push import check_repo, files_to_push, push

    if options.dry_run:
        check_repo(options.repo)
        console.show_files(options.repo, files_to_push(options.folder))
        return
    pushed = push(
        options.folder,
        options.repo,
        private=not options.public,
        collection=options.collection,
        force=options.force,
    )
    console.out.print(f"Pushed to {pushed.url}", highlight=False, soft_wrap=True)


main = command(_parser, _run, interrupted="the same command sends what has not arrived")

if __name__ == "__main__":
    sys.exit(main())
