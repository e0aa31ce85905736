"""st-push: a saved model to the Hub."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from st_jtcse.cli import console
from st_jtcse.errors import UserError

FAILED = 1
USER_FAULT = 2
INTERRUPTED = 130


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command and return its exit status.

    0 done, 2 the user's input is at fault, 1 the Hub did not take it, 130 interrupted.
    """
    options = _parser().parse_args(argv)
    # After the help text: this import takes seconds.
    from st_jtcse.hub.push import PushFailed

    try:
        with console.quiet_libraries():
            return _run(options)
    except UserError as error:
        console.tell_faults(error)
        return USER_FAULT
    except PushFailed as error:
        console.err.print(error)
        return FAILED
    except KeyboardInterrupt:
        console.err.print("Interrupted; the same command sends what has not arrived.")
        return INTERRUPTED


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


def _run(options: argparse.Namespace) -> int:
    from st_jtcse.hub.push import check_repo, files_to_push, push

    if options.dry_run:
        check_repo(options.repo)
        console.show_files(options.repo, files_to_push(options.folder))
        return 0
    pushed = push(
        options.folder,
        options.repo,
        private=not options.public,
        collection=options.collection,
        force=options.force,
    )
    console.out.print(f"Pushed to {pushed.url}", highlight=False, soft_wrap=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
