"""How soon common faults are told, and a rehearsal is over: the processor seconds of each, as a
process of its own.

Run: python benchmarks/first_faults.py [--limit SECONDS] [--rehearsal SECONDS], which prints a
table, and ends with exit status 1 where a fault does not end with status 2 or the rehearsal with 0,
or one takes more than its limit.
"""

import argparse
import json
import os
import resource
import shlex
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

TRAIN = [sys.executable, "-c", "from st_jtcse.cli.train import main; import sys; sys.exit(main())"]
EVAL = [sys.executable, "-c", "from st_jtcse.cli.eval import main; import sys; sys.exit(main())"]
FILES = {
    "my.txt": "one text\nanother text\n",
    "faq.csv": "Frage;Antwort;Nr\nWo?;Hier.;1\n",
    "pairs.jsonl": json.dumps({"sentence1": "a", "sentence2": "b", "score": 1}) + "\n",
    "rows.json": "[]\n",
    "twice.yaml": "name: a\nname: b\n",
    "tab.yaml": "name: a\n\tdata: b\n",
    "empty.yaml": "",
    "no-stages.yaml": "name: a\ndata: {train: my.txt}\n",
    "loop.yaml": "extends: ./loop.yaml\n",
}
# Names, paths, keys, types, columns, losses and arguments, as people get them wrong.
COMMANDS = """
quikstart
adpat --set data.train=my.txt
no.yaml
twice.yaml
tab.yaml
empty.yaml
no-stages.yaml
loop.yaml
.
quickstart --stage jiont
quickstart --set sed=1
quickstart --set seed
quickstart --set seed=one
quickstart --set seed=1.5
quickstart --set seed=true
quickstart --set seed=-1
quickstart --set train=my.txt
quickstart --set learning_rate=1e-5
quickstart --set data.trian=my.txt
quickstart --set data.train=no.txt
quickstart --set data.train=5
quickstart --set data.pairs=pairs.jsonl
quickstart --set stages.jiont.loss=null
quickstart --set stages.9.loss=null
quickstart --set stages.joint.loss.type=5
quickstart --set stages.joint.args=5
quickstart --set stages.joint.model.towers=[a]
quickstart --set stages.joint.model.base=embedded
quickstart --set stages.joint.model.towers=[stage:encoder_1,stage:encoder_9]
quickstart --set stages.encoder_1.model.pooling=means
quickstart --set stages.encoder_1.model.base=./no-folder
quickstart --set evaluate.dev=no.jsonl
quickstart --set evaluate.test=pairs.jsonl
quickstart --set evaluate.test.dev=pairs.jsonl
quickstart --set evaluate.score_range=[5,0]
quickstart --set evaluate.retention=1
quickstart --set evaluate.patience=zero
quickstart --set push=5
quickstart --output-dirr x
quickstart --dryrun
--show quikstart
--copy quikstart mine.yaml
--copy quickstart my.txt
--list bananas
cosent-mini --set data.pairs=no.jsonl
cosent-mini --set data.labels=score
cosent-mini --set data.pairs.columns=a
quickstart --set stages.joint.loss.type=JTCSLoss
quickstart --set stages.joint.loss.type=MatryoshkaLoss
quickstart --set stages.joint.loss.temprature=1
quickstart --set stages.joint.loss.temperature=-1
quickstart --set stages.joint.loss.temperature=warm
quickstart --set args.learning_rat=1e-5
quickstart --set args.learning_rate=fast
quickstart --set args.num_train_epochs=0
quickstart --set args.lr_scheduler_type=quick
quickstart --set args.batch_sampler=no_duplicate
quickstart --set data.train=faq.csv
cosent-mini --set data.pairs=faq.csv
cosent-mini --set data.pairs=rows.json
cosent-mini --set data.pairs.columns=[a,b]
cosent-mini --set data.pairs=pairs.jsonl --set data.pairs.columns=[a,b,score]
cosent-mini --set evaluate.dev=faq.csv
init mine.yaml --have questions --data faq.csv
init mine.yaml --have questions --data faq.csv --columns Frage,Reply
init mine.yaml --have labels --data my.txt
init mine.yaml --have sentence --data my.txt
st-eval
st-eval embedded
st-eval embedded --data no.jsonl --columns query
""".strip().splitlines()
# Checks everything, by a few steps of each stage.
REHEARSAL = "adapt --set data.train=texts.txt --dry-run"
FILES["texts.txt"] = "".join(
    f"The {number}th text, of {number % 9} parts\n" for number in range(400)
)


def seconds_of(line: str, folder: Path) -> tuple[float, int, str]:
    """Return a command's processor seconds, its exit status and the first line it tells."""
    words = shlex.split(line)
    command = [*EVAL, *words[1:]] if words[0] == "st-eval" else [*TRAIN, *words]
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(
        command, cwd=folder, capture_output=True, text=True, stdin=subprocess.DEVNULL
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    seconds = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    told = done.stderr.strip().splitlines() or [""]
    return seconds, done.returncode, told[0]


def main() -> int:
    """Measure them."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n\n")[0])
    parser.add_argument("--limit", type=float, default=0.5, help="of processor seconds")
    parser.add_argument("--rehearsal", type=float, default=6.0, help="limit of the rehearsal")
    options = parser.parse_args()
    limits = dict.fromkeys(COMMANDS, options.limit) | {REHEARSAL: options.rehearsal}
    every = []
    os.environ["OMP_NUM_THREADS"] = "1"
    wrong = 0
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        for name, text in FILES.items():
            (folder / name).write_text(text, encoding="utf-8")
        seconds_of("--version", folder)  # Compiles what is imported first.
        print("| seconds | status | command | told |\n|---|---|---|---|")
        for line, limit in limits.items():
            seconds, status, told = seconds_of(line, folder)
            wrong += status != (0 if line == REHEARSAL else 2) or seconds > limit
            every.append(seconds)
            cells = line.replace("|", "\\|"), told[:90].replace("|", "\\|")
            print(f"| {seconds:.2f} | {status} | `{cells[0]}` | {cells[1]} |", flush=True)
    faults = every[:-1]
    print(f"faults: {statistics.median(faults):.2f} s, at most {max(faults):.2f} s")
    print(f"{wrong} of {len(limits)} end otherwise than they should, or later.")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
