"""st-score: pairs of a text, judged by a language model, as a file for LS-RNS."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from st_jtcse.atomic import check_new_file, write_new
from st_jtcse.cli import console
from st_jtcse.cli.arguments import add_count, add_pooling, choices_by_flag, faults_of
from st_jtcse.cli.exit_status import command
from st_jtcse.errors import UserError


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="st-score",
        description="Have a language model judge each sentence's nearest neighbours, for the "
        "pair_scores of LSRNSLoss.",
        epilog="Example: st-score my.txt --scorer embedded --judge my-language-model --output "
        "scores.jsonl",
    )
    parser.add_argument(
        "text",
        type=Path,
        metavar="TEXT",
        help="the training sentences: .txt, .jsonl, .csv, .parquet",
    )
    scorer = "model that finds the neighbours to judge: a folder, a Hub id or embedded"
    parser.add_argument("--scorer", required=True, metavar="MODEL", help=scorer)
    add_pooling(parser, "pooling of the scorer, if it is a plain encoder")
    parser.add_argument(
        "--judge",
        required=True,
        metavar="MODEL",
        help="folder or Hub id of a text-generation model",
    )
    parser.add_argument(
        "--output", required=True, type=Path, metavar="FILE", help="the scores, .jsonl; a new file"
    )
    add_count(parser, "--neighbours", 5, "neighbours of each sentence to judge")
    prompt = "your own prompt, a text file that holds {sentence1} and {sentence2}"
    parser.add_argument("--prompt", type=Path, metavar="FILE", help=prompt)
    add_count(parser, "--max-new-tokens", 8, "of an answer")
    add_count(parser, "--batch-size", 16, "pairs per batch")
    parser.add_argument("--bf16", action="store_true", help="run the judge in bfloat16")
    parser.add_argument(
        "--cache-dir", type=Path, metavar="DIR", help="folder of the answers (default: st-train's)"
    )
    return parser


def _run(options: argparse.Namespace) -> None:
    with faults_of("--output"):
        check_new_file(options.output)
    if not options.output.absolute().parent.is_dir():
        raise UserError(f"--output: the folder of {options.output} does not exist; make it.")
    prompt = None
    if options.prompt is not None:
        try:
            prompt = options.prompt.read_text(encoding="utf-8").rstrip("\n")
        except (OSError, UnicodeDecodeError) as error:
            raise UserError(
                f"--prompt: {options.prompt} cannot be read; give a text file."
            ) from error
    with console.quiet_libraries():
        scores = _judged(options, prompt)
    lines = [
        json.dumps({"sentence1": first, "sentence2": second, "score": score}, ensure_ascii=False)
        + "\n"
        for (first, second), score in scores.items()
        if score is not None
    ]
    if not lines:
        asked = f"No answer to {len(scores)} pairs begins with a number from 0 to 1"
        raise UserError(f"{asked}; change the prompt or the judge.")
    with faults_of("--output"):
        write_new(options.output, "".join(lines))
    told = f"{len(scores) - len(lines)} answers do not begin with a number from 0 to 1"
    console.say(f"Wrote {len(lines)} pairs to {options.output}; {told}.")
    console.say("Name the file as 'pair_scores' of a stage whose loss is LSRNSLoss.")


def _judged(options: argparse.Namespace, prompt: str | None) -> dict[tuple[str, str], float | None]:
    # After the cheap answers: these imports take seconds.
    from st_jtcse.data import Source, load_sentences
    from st_jtcse.data.arrow_files import DEFAULT_CACHE
    from st_jtcse.data.nearest import needs_index
    from st_jtcse.modules import load_sentence_transformer
    from st_jtcse.papers.data.judge import PROMPT, Judge, judged_scores, neighbour_pairs

    sentences = load_sentences([Source(file=options.text)]).dataset["sentence"][:]
    if (different := len(set(sentences))) < 2:
        raise UserError(f"{options.text} holds one sentence, and pairs need two; give more text.")
    needs_index(different)  # Refuses what it lacks before the models are loaded.
    how = {
        "max_new_tokens": options.max_new_tokens,
        "batch_size": options.batch_size,
        "bf16": options.bf16,
    }
    judge = Judge(options.judge, PROMPT if prompt is None else prompt, **how)
    with faults_of("--scorer"), choices_by_flag():
        scorer = load_sentence_transformer(options.scorer, pooling=options.pooling)
    pairs = neighbour_pairs(sentences, scorer, options.neighbours)
    return dict(zip(pairs, judged_scores(pairs, judge, options.cache_dir or DEFAULT_CACHE)))


main = command(_parser, _run, interrupted="to go on after the answers so far, repeat the command")

if __name__ == "__main__":
    sys.exit(main())
