"""st-convert: between the two encoder folders that the papers' authors publish and one
saved twin.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from st_jtcse.cli import console
from st_jtcse.cli.arguments import choices_by_flag, faults_of, positive
from st_jtcse.cli.exit_status import command

_POOLED_BY_A_RECIPE = (
    "join two plain encoders or two models that are pooled alike, or train them by a recipe whose "
    "'towers' name a pooling"
)


@console.quiet_libraries()
def _run(options: argparse.Namespace) -> None:
    with faults_of(f"st-convert {options.command}"), choices_by_flag(_POOLED_BY_A_RECIPE):
        options.convert(options)
    console.say(f"Saved {options.output}.")
    if options.command == "join":
        from st_jtcse.hub.model_form import model_form

        console.say(f"Use it: {model_form(Path(options.output)).usage(options.output)}")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="st-convert",
        description="Convert between two plain encoder folders and one saved twin; every weight is "
        "kept bit by bit.",
        epilog="Examples: st-convert join encoder_1 encoder_2 my-twin; st-convert split my-twin "
        "encoders",
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    join = commands.add_parser("join", help="two encoders -> a twin that SentenceTransformer loads")
    join.set_defaults(convert=_join)
    join.add_argument("tower_1", metavar="TOWER_1", help="folder or Hub id of encoder I")
    join.add_argument(
        "tower_2", metavar="TOWER_2", help="folder or Hub id of encoder II, of the same shape"
    )
    join.add_argument("output", metavar="OUTPUT", help="folder of the twin, new or empty")
    every = (
        "cross-attention after every K-th layer, for further training; none for no such layer "
        "(default: 2)"
    )
    join.add_argument("--cross-attention-every", type=_period, default=2, metavar="K", help=every)
    residual = (
        "residual of the cross stream: its own stream; local: the tower's hidden state; layers: "
        "its own, through the ordinary layers too (default: stream)"
    )
    join.add_argument(
        "--cross-residual", choices=("stream", "local", "layers"), default="stream", help=residual
    )
    join.add_argument("--max-seq-length", type=_length, metavar="N", help="longest input in tokens")
    without = "draw random poolers for encoders that have none, which are refused otherwise"
    join.add_argument("--random-pooler", action="store_true", help=without)
    split = commands.add_parser(
        "split", help="a twin -> OUTPUT/tower_1 and OUTPUT/tower_2, plain encoders"
    )
    split.set_defaults(convert=_split)
    split.add_argument("twin", metavar="TWIN", help="folder or Hub id of a saved twin")
    split.add_argument("output", metavar="OUTPUT", help="folder of the two encoders, new or empty")
    return parser


def _period(text: str) -> int | None:
    if text in ("none", "null"):
        return None
    return positive(text, "a number of layers, or none")


def _length(text: str) -> int:
    return positive(text, "a number of tokens")


def _join(options: argparse.Namespace) -> None:
    # After the cheap answers: this import takes seconds.
    from st_jtcse.modules.twin_encoder import join_towers

    join_towers(
        options.tower_1,
        options.tower_2,
        options.output,
        cross_attention_every=options.cross_attention_every,
        cross_residual=options.cross_residual,
        max_seq_length=options.max_seq_length,
        # Any fixed number: the same towers then always give the same twin.
        pooler_seed=0 if options.random_pooler else None,
    )


def _split(options: argparse.Namespace) -> None:
    from st_jtcse.modules.twin_encoder import split_twin

    split_twin(options.twin, options.output)


main = command(_parser, _run, interrupted="nothing was written")

if __name__ == "__main__":
    sys.exit(main())
