"""st-diagnose: diagnostics of one or several models, as numbers, pictures and a page."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from st_jtcse.cli import console
from st_jtcse.cli.arguments import REPEATED, add_count, add_pooling, add_trust, choices_by_flag
from st_jtcse.cli.exit_status import command
from st_jtcse.errors import UserError

if TYPE_CHECKING:
    from st_jtcse.papers.diagnostics.diagnosis import Diagnosis, Plan


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="st-diagnose",
        description="Look inside models: alignment and uniformity, cosines by gold score, E_CLS, "
        "attention, moduli, a map, cost, pairs they disagree on; as numbers, pictures and a page.",
        epilog="Example: st-diagnose runs/quickstart/joint runs/quickstart/distilled --pairs "
        "pairs.jsonl --output-dir diagnosis",
    )
    parser.add_argument(
        "models", nargs="+", metavar="MODEL", help="folder or Hub id of a model, or embedded"
    )
    graded = "graded pairs: .jsonl, .csv or .parquet with sentence1, sentence2, score"
    parser.add_argument("--pairs", required=True, type=Path, metavar="FILE", help=graded)
    parser.add_argument(
        "--output-dir",
        required=True,
        type=Path,
        metavar="DIR",
        help="folder to write, new or empty",
    )
    _add_shown(parser)
    seeded = "seed of that draw, of t-SNE and of poolers that a checkpoint lacks (default: 42)"
    parser.add_argument("--seed", type=int, default=42, help=seeded)
    add_pooling(parser, "how to pool the encoders, instead of by the models' own modules")
    add_trust(parser)
    return parser


def _add_shown(parser: argparse.ArgumentParser) -> None:
    """Add what is shown, and of how much."""
    bounds: Any = {"nargs": 2, "type": float, "default": (0.0, 5.0), "metavar": ("LOW", "HIGH")}
    parser.add_argument(
        "--score-range", **bounds, help="lowest and highest score possible (default: 0 5)"
    )
    sentence = "sentence whose attention is shown (default: the first of the pairs)"
    parser.add_argument("--sentence", metavar="TEXT", help=sentence)
    parser.add_argument(
        "--map", choices=("pca", "tsne"), default="pca", help="how the map is made (default: pca)"
    )
    add_count(
        parser, "--sample-size", 250, "pairs drawn for the map, E_CLS, the moduli and the speed"
    )
    cases = "pairs to show that the models, or one model and the gold scores, rank most differently"
    add_count(parser, "--cases", 0, cases)
    bare = (
        "show the moduli also without the LayerNorms of this name in the encoder, where * is "
        "anything; repeatable"
    )
    parser.add_argument("--without-layer-norms", **REPEATED, metavar="NAME", help=bare)


@console.quiet_libraries()
def _diagnose(options: argparse.Namespace) -> None:
    # After the cheap answers: these imports take seconds.
    from st_jtcse.atomic import check_new, new_folder
    from st_jtcse.data import Source, load_pairs
    from st_jtcse.papers.diagnostics.diagnosis import Plan
    from st_jtcse.papers.reports.diagnosis_report import (
        PAGE,
        cases_table,
        summary_by_model,
        write_report,
    )
    from st_jtcse.reports import drawing
    from st_jtcse.training.provenance import environment

    # All that can be refused at once is refused before the first model is loaded.
    drawing.check_installed()
    check_new(options.output_dir)
    pairs = load_pairs(Source(file=options.pairs), tuple(options.score_range))
    plan = Plan(
        pairs,
        score_range=tuple(options.score_range),
        sentence=(options.sentence or pairs.sentences1[0]).strip(),
        map_method=options.map,
        sample_size=options.sample_size,
        seed=options.seed,
        cases=options.cases,
        without=tuple(options.without_layer_norms),
    )
    diagnoses = _diagnoses(options, plan)
    with new_folder(options.output_dir) as folder:
        write_report(folder, diagnoses, plan, {"environment": environment()})
    console.show(summary_by_model(diagnoses, f"diagnostics on {options.pairs.name}"))
    if plan.cases:
        console.show(cases_table(diagnoses, plan))
    for found in diagnoses:
        for note in found.notes:
            console.err.print(f"{found.name}. {note}")
    console.say(f"Open {options.output_dir / PAGE}.")


def _diagnoses(options: argparse.Namespace, plan: Plan) -> list[Diagnosis]:
    from transformers import set_seed

    from st_jtcse.modules import load_sentence_transformer
    from st_jtcse.papers.diagnostics.diagnosis import diagnose

    found = []
    for number, (name, given) in enumerate(zip(_names(options.models), options.models), start=1):
        console.err.print(f"[{number}/{len(options.models)}] {name}")
        set_seed(options.seed)  # A checkpoint without pooler weights draws them.
        with choices_by_flag():
            model = load_sentence_transformer(
                given, pooling=options.pooling, trust_remote_code=options.trust_remote_code
            )
        found.append(diagnose(name, model, plan))
    return found


def _names(models: list[str]) -> list[str]:
    """Return the last parts of the models' paths, or the whole where these leave doubt."""
    names = [Path(model).name or model for model in models]
    if len(set(names)) < len(names):
        return models
    return names


def _run(options: argparse.Namespace) -> None:
    low, high = options.score_range
    if not low < high:
        raise UserError(
            f"--score-range: expected a lower and a higher score, found {low:g} and {high:g}."
        )
    if not options.pairs.is_file():
        raise UserError(f"--pairs: {options.pairs} is not a file; check the path.")
    if options.sentence is not None and not options.sentence.strip():
        raise UserError(
            "--sentence: expected a sentence, found nothing; leave it out for the first of the "
            "pairs."
        )
    for model in options.models:
        if options.models.count(model) > 1:
            raise UserError(f"The model {model!r} is given twice; give each once.")
        # A Hub id has one slash at most.
        if (model.count("/") > 1 or model.startswith((".", "/", "~"))) and not Path(model).is_dir():
            raise UserError(f"The model {model!r} is not a folder; check the path.")
    _diagnose(options)


main = command(_parser, _run, interrupted="nothing was written")

if __name__ == "__main__":
    sys.exit(main())
