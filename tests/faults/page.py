r"""Make docs/reliability.md from the tables of faults and inputs, and from what a run of the
harness counted.

python -m pytest tests/faults tests/training/test_resume_checks.py tests/training/test_older_runs.py
    \ tests/modules/test_older_models.py tests/hub/test_upload.py --all-faults --junitxml=report.xml
PYTHONPATH=.:tests python -m faults.page report.xml

Several reports, of runs that shared the tests, count as one.
"""

import json
import platform
import sys
import xml.etree.ElementTree as ElementTree
from collections import Counter
from importlib.metadata import version
from pathlib import Path

from inputs.table import GROUPS, ROWS

from faults.promises import PROMISES

TESTS = Path(__file__).parents[1]
PAGE = TESTS.parent / "docs" / "reliability.md"
COUNTED = Path(__file__).with_name("counted.json")
PREFACE = """\
# Reliability

For those who want to know what an interruption, a full disk or a bad file does.

`tests/faults/page.py` makes this page from the tables `tests/faults/promises.py` and `tests/inputs/table.py`, and from
what one run of the tests with `--all-faults` counted. {of} The usual test command tries only a sample of the faults.

The faults strike a run of three small stages: an encoder chosen on dev data, a twin without dev data, and a student of
the twin. Each fault strikes at one *moment*: the run's n-th operation on the file system, as Python's audit events
report them. The test then loads and hashes every stage that looks finished, resumes the run, and compares its weights
and record with those of an undisturbed run.

A kill leaves the disk as it is. So one undisturbed run shows what a kill at each of its moments would leave. The tests
restore that state and resume from it; moments that leave the same bytes are tested together. One in ten resumed runs
goes on to the end. The others go on to where the next stage begins, and there every file must equal the undisturbed
run's. At some moments the tests do kill a process, and it leaves exactly the state that they restore.
"""
CIRCUMSTANCES = """\
## What may change results

The same recipe, data and seed give the same bytes on the same machine. With the run of three stages we measured this:

| what differs | weights | scores on dev |
|---|---|---|
| 0, 1 or 2 data-loading workers; another process; with or without the rehearsal | the same bytes | the same |
| all packages but torch at their lowest versions, such as transformers 5.18.0, not 5.23.0 | the same bytes | the same |
| two threads instead of one (`OMP_NUM_THREADS`) | differ by 1e-5 to 3e-5 | agree to four decimals |
| torch 2.7.0 and Python 3.12.1, not torch 2.13.0 and Python 3.11.7 | differ by 1e-5 to 4e-5 | agree to four decimals |

Other processors, accelerators and numbers of processes may change results too. We did not measure that, because these
tests ran on one machine without an accelerator. `results.json` and every checkpoint record all of them, and `--resume`
says in one line which have changed. The rehearsal, the short trial of each stage before a run, takes 4.5 to 4.8 seconds
of one core on `quickstart`.
"""


def counted(*reports):
    """Passed and failed cases by test, FILE::FUNCTION; one test may tell that it met several cases."""
    found = {}
    for case in (case for report in reports for case in ElementTree.parse(report).iter("testcase")):
        name = f"{case.get('classname').removeprefix('tests.').replace('.', '/')}.py::{case.get('name').partition('[')[0]}"
        if case.find("skipped") is not None:
            continue
        cases = next(
            (int(p.get("value")) for p in case.iter("property") if p.get("name") == "cases"), 1
        )
        passed = case.find("failure") is None and case.find("error") is None
        found.setdefault(name, Counter())["passed" if passed else "failed"] += cases
    return {name: dict(cases) for name, cases in sorted(found.items())}


def cell(text):
    return text.replace("|", "\\|").replace("\n", " ")


def link(test):
    file, _, function = test.partition("::")
    return f"[{function}](../tests/{file})"


def render(found):
    """The page, of what was counted."""
    tests = found["tests"]
    met = {promise.test: tests.get(promise.test, {}) for promise in PROMISES}
    passed, failed = (
        sum(cases.get(key, 0) for cases in met.values()) for key in ("passed", "failed")
    )
    lines = [PREFACE.format(of=found["of"])]
    lines += [
        f"{len(PROMISES)} kinds of faults, {passed} cases passed, {failed} failed; {len(ROWS)} "
        "faulty inputs.\n"
    ]
    lines += ["## Faults\n", "| fault | what is promised | passed | test |", "|---|---|---|---|"]
    for promise in PROMISES:
        cases = met[promise.test]
        count = (
            f"{cases.get('passed', 0)} of {sum(cases.values())}" if cases else "in the test command"
        )
        lines.append(
            f"| {cell(promise.fault)} | {cell(promise.promise)} | {count} | {link(promise.test)} |"
        )
    lines += ["", CIRCUMSTANCES, "## Faulty inputs\n"]
    lines.append(
        "Each input ends the command with the exit status and a message that contains the text; "
        "nothing is left that "
        "looks finished."
    )
    for group, rows in GROUPS.items():
        lines += [
            f"\n### {group.capitalize()}: {len(rows)}\n",
            "| input | message contains | exit status |",
            "|---|---|---|",
        ]
        lines += [f"| {cell(row.name)} | {cell(row.sentence)} | {row.status} |" for row in rows]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    known = json.loads(COUNTED.read_text(encoding="utf-8"))
    if len(sys.argv) > 1:
        known["tests"] = {
            name: cases
            for name, cases in counted(*sys.argv[1:]).items()
            if name in {p.test for p in PROMISES}
        }
        named = ", ".join(
            f"{name} {version(name)}" for name in ("torch", "transformers", "sentence-transformers")
        )
        known["of"] = (
            f"Counted on {platform.system()} {platform.machine()}, Python "
            f"{platform.python_version()}, {named}."
        )
        COUNTED.write_text(json.dumps(known, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    PAGE.write_text(render(known), encoding="utf-8")
