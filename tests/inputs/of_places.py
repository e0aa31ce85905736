"""Folders and files where nothing can be written, or something lies already."""

from inputs.row import Row

LONG = "n" * 300
MINE = {"out/mine.txt": "mine\n"}
FILE = {"file": "mine\n"}
LOOP = {"out": lambda path, world: path.symlink_to("out")}
TRAIN = "st-train {recipe} --output-dir"
DIAGNOSE = "st-diagnose {model} --pairs {pairs} --sample-size 2 --output-dir"
CONVERGENCE = "st-convergence {run} --output-dir"
SCORE = "st-score {corpus} --scorer {model} --judge {judge} --output"
NOT_EMPTY = "out is not empty; choose another folder."
BELOW = "file, which is a file; choose another place."
NO_FOLDER = "file is not a folder; choose another folder."

ROWS = [
    Row("a run in a folder of others", f"{TRAIN} out", NOT_EMPTY, files=MINE),
    Row("a run resumed in a folder of others", f"{TRAIN} out --resume", NOT_EMPTY, files=MINE),
    Row(
        "a folder of others with names like ours",
        f"{TRAIN} out --resume",
        NOT_EMPTY,
        files={"out/.one.old/training_results.json": "{}", "out/.one.new/a.txt": "a\n"},
    ),
    Row("a run in a file", f"{TRAIN} file", NO_FOLDER, files=FILE),
    Row("a run below a file", f"{TRAIN} file/out", BELOW, files=FILE),
    Row(
        "a run below a device",
        f"{TRAIN} /dev/null/out",
        "/dev/null, which is a file; choose another place.",
    ),
    Row(
        "a run under a name too long",
        f"{TRAIN} {LONG}",
        "the name is too long; choose a shorter one.",
    ),
    Row(
        "a run in links that lead in a circle",
        f"{TRAIN} out",
        "out is not a folder; choose another folder.",
        files=LOOP,
    ),
    Row("a run where the system keeps its own", f"{TRAIN} /proc/none/out", "/proc/none"),
    Row(
        "a copy into no folder",
        "st-train --copy quickstart none/my.yaml",
        "none/my.yaml: there is no such file or folder; check the path.",
    ),
    Row(
        "a copy under a name too long",
        f"st-train --copy quickstart {LONG}",
        "the name is too long; choose a shorter one.",
    ),
    Row(
        "a twin in a folder of others",
        "st-convert join {first} {second} out",
        NOT_EMPTY,
        files=MINE,
    ),
    Row("a twin in a file", "st-convert join {first} {second} file", NO_FOLDER, files=FILE),
    Row(
        "a twin below a file",
        "st-convert join {first} {second} file/out",
        BELOW,
        files=FILE,
    ),
    Row(
        "a twin split into a folder of others", "st-convert split {twin} out", NOT_EMPTY, files=MINE
    ),
    Row("a diagnosis in a folder of others", f"{DIAGNOSE} out", NOT_EMPTY, files=MINE),
    Row("a diagnosis below a file", f"{DIAGNOSE} file/out", BELOW, files=FILE),
    Row(
        "a report in a file",
        f"{CONVERGENCE} file",
        f"--output-dir: {NO_FOLDER}",
        files=FILE,
    ),
    Row(
        "a report below a device",
        f"{CONVERGENCE} /dev/null/out",
        "--output-dir: The output /dev/null/out lies below /dev/null, which is a file",
    ),
    Row(
        "scores in no folder",
        f"{SCORE} none/o.jsonl",
        "--output: the folder of none/o.jsonl does not exist; make it.",
    ),
    Row("scores below a file", f"{SCORE} file/o.jsonl", "--output: ", files=FILE),
    Row(
        "an evaluation in a file",
        "st-eval {model} --task senteval/CR --output-dir file",
        f"--output-dir: {NO_FOLDER}",
        files=FILE,
    ),
    Row(
        "an evaluation below a device",
        "st-eval {model} --task senteval/CR --output-dir /dev/null/out",
        "--output-dir: The output /dev/null/out lies below /dev/null, which is a file",
    ),
]
