"""Whatever lies where a command writes, and is not what this package wrote there, stays as it is: its
bytes, its inode, and what links lead to.
"""

import errno
import json
import os
import shutil
import stat
import threading

import pytest
from conftest import make_model, make_pairs, make_sentences, save_encoder, write_rows

from st_jtcse.cli import convert
from st_jtcse.cli import eval as evaluate
from st_jtcse.cli import train as training
from st_jtcse.data import Source, load_sentences, sentences
from st_jtcse.errors import UserError
from st_jtcse.ownership import LIST
from st_jtcse.papers.cli import convergence, diagnose, score
from st_jtcse.papers.reproduce import command as reproduce
from st_jtcse.training.checkpoints import Checkpoints

pytestmark = pytest.mark.usefixtures("unrehearsed")

NOT_EMPTY = "is not empty; choose another folder."
NOT_OURS = "is not what st-jtcse wrote there, or was changed since; move it to another place."
EXISTS = "exists already; choose another file."


def seen(folder):
    """All that lies in a folder: by path the inode, and the content, the link's goal or nothing."""
    found = {}
    for place, folders, files in os.walk(folder):
        for name in (*folders, *files):
            path = os.path.join(place, name)
            state = os.lstat(path)
            content = None
            if stat.S_ISLNK(state.st_mode):
                content = os.readlink(path)
            elif stat.S_ISREG(state.st_mode):
                with open(path, "rb") as file:
                    content = file.read()
            found[os.path.relpath(path, folder)] = state.st_ino, content
    return found


def put(folder, *names):
    """Put a file of somebody's at each path."""
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(f"mine, called {name}\n")


def answer(capsys, main, *arguments):
    capsys.readouterr()
    status = main([str(argument) for argument in arguments])
    told = capsys.readouterr()
    assert "Traceback" not in told.err, told.err
    return status, told.err


@pytest.fixture(scope="module")
def sound(tmp_path_factory):
    """Two encoders, a model, a text, pairs and a recipe; and what links lead to: `outside`."""
    root = tmp_path_factory.mktemp("sound")
    for name, layers in (("a", 1), ("b", 1), ("c", 2)):
        save_encoder(root / name, layers, num_hidden_layers=layers)
    make_model(root / "c").save_pretrained(str(root / "model"))
    (root / "text.txt").write_text("\n".join(make_sentences(16)) + "\n")
    write_rows(root / "pairs.jsonl", make_pairs(12, 3))
    args = {"max_steps": 4, "per_device_train_batch_size": 8, "use_cpu": True, "logging_steps": 1}
    args |= {"save_strategy": "steps", "save_steps": 2, "eval_steps": 2, "eval_strategy": "steps"}
    stages = [
        {"name": name, "model": {"base": base, "pooling": "cls"}, "loss": {"type": "SimCSELoss"}}
        for name, base in (("one", "./a"), ("two", "./b"))
    ]
    recipe = {"name": "tiny", "output_dir": "out", "cache_dir": "cache", "stages": stages}
    recipe |= {"data": {"train": "text.txt"}, "evaluate": {"dev": "pairs.jsonl"}, "args": args}
    (root / "recipe.yaml").write_text(json.dumps(recipe))
    return root


@pytest.fixture
def outside(tmp_path):
    put(tmp_path / "outside", "file", "folder/file")
    return tmp_path / "outside"


@pytest.fixture
def place(tmp_path, monkeypatch, sound):
    """The folder that a command is called in."""
    (tmp_path / "place").mkdir()
    monkeypatch.chdir(tmp_path / "place")
    return tmp_path / "place"


def commands(sound):
    """Each command that writes a folder, up to its name."""
    model, pairs = sound / "model", sound / "pairs.jsonl"
    run = sound / "recipe.yaml", "--output-dir"
    return {
        "st-train": (training.main, *run),
        "st-train --resume": (training.main, "--resume", *run),
        "st-train of seeds": (training.main, "--set", "seeds=[1, 2]", *run),
        "st-eval": (evaluate.main, model, "--data", pairs, "--output-dir"),
        "st-diagnose": (diagnose.main, model, "--pairs", pairs, "--output-dir"),
        "st-convergence": (convergence.main, sound / "run", "--output-dir"),
        "st-reproduce": (reproduce.main, "jtcse-3", "--output-dir"),
        "st-convert join": (convert.main, "join", sound / "a", sound / "b"),
        "st-convert split": (convert.main, "split", model),
    }


OURS = [
    "notes.txt",
    "run.log",
    "results.json",
    "results.md",
    "index.html",
    "report.html",
    "convergence.json",
    ".in-use",
    ".in-use.lock",
    ".recipe.yaml.partial",
    ".one.new/training_results.json",
    "one/checkpoint-2/model.safetensors",
    LIST,
]


def test_a_folder_of_somebody_is_refused_in_the_same_words_by_every_command(
    sound, place, outside, capsys
):
    for number, name in enumerate(OURS):
        folder = place / f"{number}"
        put(folder, name)
        (place / f"link-{number}").mkdir()
        linked = place / f"link-{number}" / name.partition("/")[0]
        linked.symlink_to(outside / ("file" if number % 2 else "folder"))
    before = seen(place.parent)
    for called, (main, *arguments) in commands(sound).items():
        for folder in place.iterdir():
            status, told = answer(capsys, main, *arguments, folder)
            assert status == 2 and f"{folder} {NOT_EMPTY}" in told, (called, folder, told)
    assert seen(place.parent) == before


def test_a_place_that_is_no_folder_is_refused(sound, place, outside, capsys):
    put(place, "file")
    (place / "dangling").symlink_to("nowhere")
    (place / "to-a-file").symlink_to(outside / "file")
    before = seen(place.parent)
    for called, (main, *arguments) in commands(sound).items():
        for output in place.iterdir():
            status, told = answer(capsys, main, *arguments, output)
            assert status == 2 and f"{output} is not a folder;" in told, (called, output, told)
    assert seen(place.parent) == before


def test_a_new_file_is_written_where_nothing_lies(sound, place, outside, capsys):
    put(place, "file")
    (place / "dangling").symlink_to("nowhere")
    (place / "to-a-file").symlink_to(outside / "file")
    before = seen(place.parent)
    judge = "--scorer", sound / "model", "--judge", sound / "model", "--output"
    init = "--have", "texts", "--data", sound / "text.txt"
    for output in place.iterdir():
        for main, *arguments in (
            (score.main, sound / "text.txt", *judge, output),
            (training.main, "--copy", "quickstart", output),
            (training.main, "init", output, *init),
        ):
            status, told = answer(capsys, main, *arguments)
            assert status == 2 and f"{output} {EXISTS}" in told, told
    assert seen(place.parent) == before


def test_a_copy_s_data_go_through_no_link_and_onto_no_file(place, outside, capsys, monkeypatch):
    copy = training.main, "--copy", "quickstart"
    assert answer(capsys, *copy, place / "first.yaml")[0] == 0
    data = sorted(path.relative_to(place) for path in place.rglob("*") if path.is_file())
    data = [str(file) for file in data if file.suffix != ".yaml"]
    assert data
    # Files of the same content are as good, and left alone.
    before = seen(place)
    assert answer(capsys, *copy, place / "second.yaml")[0] == 0
    assert before.items() <= seen(place).items() and len(seen(place)) == len(before) + 1
    for link in (outside / "file", outside / "none"):
        folder = place / link.name
        (folder / data[-1]).parent.mkdir(parents=True)
        (folder / data[-1]).symlink_to(link)
        before = seen(place.parent)
        status, told = answer(capsys, *copy, folder / "r.yaml")
        assert status == 2 and "is another file; choose another folder." in told
        assert seen(place.parent) == before
    # A copy that fails takes back what it wrote.
    (place / "full").mkdir()
    put(place / "full", "mine")
    before, write = seen(place), os.fsync

    def full(descriptor):
        if data[-1].rpartition("/")[2] in os.readlink(f"/proc/self/fd/{descriptor}"):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        write(descriptor)

    monkeypatch.setattr("os.fsync", full)
    assert answer(capsys, *copy, place / "full" / "r.yaml")[0] == 2
    files = {path: state for path, state in seen(place).items() if state[1] is not None}
    assert files == {path: state for path, state in before.items() if state[1] is not None}


class Cut(Exception):
    """The end of a process."""


@pytest.fixture(scope="module")
def cut_off(sound, tmp_path_factory):
    """A run cut off in its first stage, after the checkpoint at step 2."""
    folder = tmp_path_factory.mktemp("cut") / "out"
    save = Checkpoints.on_save

    def save_and_end(*given, **more):
        save(*given, **more)
        raise Cut

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("st_jtcse.training.runner.rehearse", lambda *given: None)
        patch.setattr(Checkpoints, "on_save", save_and_end)
        assert training.main([str(sound / "recipe.yaml"), "--output-dir", str(folder)]) == 1
    assert (folder / "one" / "checkpoint-2").is_dir()
    return folder


FOREIGN = [
    "notes.txt",
    ".results.json.partial",
    ".one.new/notes.txt",
    ".one.old/training_results.json",
    ".one.new.0123abcd/model.safetensors",
    "mine/model.safetensors",
    "one/notes.txt",
    "one/.hidden",
    "one/1_Pooling/notes.txt",
    "one/checkpoint-2/notes.txt",
    "one/checkpoint-2/.hidden",
    "one/checkpoint-last/model.safetensors",
    "one/runs/events",
    "two/notes.txt",
]


def test_a_run_leaves_the_files_of_others_alone(
    sound, cut_off, place, outside, capsys, monkeypatch
):
    out = place / "out"
    shutil.copytree(cut_off, out)
    put(place, "notes.txt", *(f"out/{name}" for name in FOREIGN))
    for name, link in (("link", "file"), ("one/link", "file"), ("one/to", "folder")):
        (out / name).symlink_to(outside / link)
    (out / ".recipe.yaml.partial").symlink_to(outside / "file")
    os.link(outside / "file", out / "one" / "hard")
    put(out, "one/README.md")  # As the model's card is called.
    mine = {path for path in seen(place) if path not in {f"out/{p}" for p in seen(cut_off)}}
    before = {path: state for path, state in seen(place).items() if path in mine}
    files = {path: state for path, state in before.items() if state[1] is not None}
    resume = training.main, sound / "recipe.yaml", "--output-dir", out, "--resume"

    def fail(*given):
        raise Cut

    with monkeypatch.context() as patch:  # A run that fails at its end, and one that does not.
        patch.setattr("st_jtcse.training.stage_saving.describe", fail)
        assert answer(capsys, *resume)[0] == 1
    assert files.items() <= seen(place).items()
    for _ in range(2):  # The second finds all finished.
        status, told = answer(capsys, *resume)
        assert status == 0, told
        kept = files.pop("out/one/README.md", None)
        if kept is not None:
            files["out/one/README.md.kept"] = kept
        assert files.items() <= seen(place).items()
    assert seen(outside) == {p: s for p, s in seen(outside).items()} and (
        (outside / "file").read_text() == "mine, called file\n"
    )
    left = {path for path in seen(out) if f"out/{path}" not in files}
    assert not [path for path in left if path.endswith(".partial") or ".old." in path]
    assert not [path for path in left if "checkpoint" in path and path.endswith(".safetensors")]
    model = json.loads((out / "one" / "training_results.json").read_text())
    straight = place / "straight"
    assert answer(capsys, training.main, resume[1], "--output-dir", straight)[0] == 0
    straight = json.loads((straight / "one" / "training_results.json").read_text())
    assert model["weights_sha256"] == straight["weights_sha256"]
    assert model["settings_sha256"] == straight["settings_sha256"]


def linked(path, goal):
    if path.is_dir():
        shutil.rmtree(path)
    path.unlink(missing_ok=True)
    path.symlink_to(goal)


def test_what_lies_where_a_run_is_going_to_write_is_refused(sound, cut_off, place, outside, capsys):
    faults = {
        "results.json": lambda path: linked(path, outside / "file"),
        "report.html": lambda path: put(path.parent, path.name),
        ".in-use": lambda path: linked(path, outside / "file"),
        ".in-use.lock": lambda path: linked(path, outside / "file"),
        "one": lambda path: linked(path, outside / "folder"),
        "two": lambda path: put(path.parent, path.name),
        "one/checkpoint-2": lambda path: linked(path, outside / "folder"),
        "one/checkpoint-4": lambda path: put(path, "model.safetensors"),
        "one/checkpoint-6": lambda path: linked(path, outside / "folder"),
        "one/eval": lambda path: linked(path, outside / "folder"),
        "two/base": lambda path: put(path, "model.safetensors"),
        "two/" + LIST: lambda path: put(path.parent, path.name),
    }
    for name, fault in faults.items():
        out = place / "out"
        shutil.rmtree(out, ignore_errors=True)
        shutil.copytree(cut_off, out)
        fault(out / name)
        before = seen(place.parent)
        status, told = answer(
            capsys, training.main, sound / "recipe.yaml", "--output-dir", out, "--resume"
        )
        assert status == 2 and f"{out / name} {NOT_OURS}" in told, (name, told)
        assert seen(place.parent) == before, name


def test_another_training_s_checkpoint_and_a_link_in_one_are_not_removed(
    sound, cut_off, place, outside, capsys
):
    resume = training.main, sound / "recipe.yaml", "--output-dir", place / "out", "--resume"
    shutil.copytree(cut_off, place / "out")
    checkpoint = place / "out" / "one" / "checkpoint-2"
    manifest = checkpoint / "checkpoint_manifest.json"
    manifest.write_text(manifest.read_text() + "\n")  # Whole, and not what was saved here.
    others = seen(checkpoint)
    status, told = answer(capsys, *resume)
    assert status == 2 and f"{checkpoint} {NOT_OURS}" in told and seen(checkpoint) == others
    manifest.unlink()
    linked(checkpoint / "optimizer.pt", outside / "file")
    others = seen(checkpoint)
    status, told = answer(capsys, *resume)
    assert status == 2 and f"{checkpoint / 'optimizer.pt'} {NOT_OURS}" in told
    assert seen(checkpoint) == others
    assert (outside / "file").read_text() == "mine, called file\n"


def test_a_log_of_somebody_gets_no_line(sound, cut_off, place, outside, capsys):
    out = place / "out"
    resume = training.main, sound / "recipe.yaml", "--output-dir", out, "--resume"
    shutil.copytree(cut_off, out)
    # As by `st-train ... > out/run.log`, whose shell has emptied the file.
    (out / "run.log").write_bytes(b"")
    status, told = answer(capsys, *resume)
    assert status == 0 and f"{out / 'run.log'} is not the log of this run" in told
    assert (out / "run.log").read_bytes() == b""
    linked(out / "run.log", outside / "file")
    assert answer(capsys, *resume)[0] == 0
    assert (outside / "file").read_text() == "mine, called file\n"
    # A copy by hard links, as `cp -al` makes it, gets no line of the original's.
    (out / "run.log").unlink()
    assert answer(capsys, *resume)[0] == 0
    shutil.copytree(out, place / "copy", copy_function=os.link)
    before = seen(place / "copy")
    status, told = answer(capsys, *resume)
    assert status == 0 and "not the log" not in told
    assert seen(place / "copy") == before


def test_an_evaluation_leaves_the_files_of_others_alone(sound, place, outside, capsys):
    shutil.copytree(sound / "model", place / "model")
    out = place / "model" / "evaluation"
    command = evaluate.main, place / "model", "--data", sound / "pairs.jsonl", "--output-dir"
    assert answer(capsys, *command, out)[0] == 0
    put(out, "notes.txt", ".results.json.partial")
    (out / "link").symlink_to(outside / "file")
    names = ("notes.txt", ".results.json.partial", "link")
    mine = {name: seen(out)[name] for name in names}
    assert answer(capsys, *command, out)[0] == 0 and mine.items() <= seen(out).items()
    for name in ("results.json", "results.md", "index.html", "data.svg"):
        ours = (out / name).read_bytes()
        for fault in (
            lambda path: put(path.parent, path.name),
            lambda path: linked(path, outside / "file"),
        ):
            fault(out / name)
            before = seen(place.parent)
            for options in ([*command, out], [*command[:-1], "--card"]):
                status, told = answer(capsys, *options)
                # What a card cannot show is refused before.
                first = "is damaged" if "--card" in options and name == "results.json" else ""
                assert status == 2 and f"{out / name} {first or NOT_OURS}" in told, (name, told)
            assert seen(place.parent) == before
            (out / name).unlink()
            (out / name).write_bytes(ours)
    assert answer(capsys, *command, out)[0] == 0 and mine.items() <= seen(out).items()
    # One of an earlier version, which made no list, is gone on with.
    (out / LIST).unlink()
    assert answer(capsys, *command, out)[0] == 0 and mine.items() <= seen(out).items()


def test_a_report_leaves_the_files_of_others_alone(sound, cut_off, place, capsys):
    shutil.copytree(cut_off, place / "out")
    train = training.main, sound / "recipe.yaml", "--output-dir", place / "out", "--resume"
    assert answer(capsys, *train)[0] == 0
    command = convergence.main, place / "out", "--output-dir", place / "report"
    assert answer(capsys, *command)[0] == 0
    put(place / "report", "notes.txt")
    assert answer(capsys, *command)[0] == 0
    put(place / "report", "convergence.svg")
    before = seen(place)
    status, told = answer(capsys, *command)
    assert status == 2 and f"{place / 'report' / 'convergence.svg'} {NOT_OURS}" in told
    # One command's folder is not another's.
    for output in ("report", "out"):
        for main, *arguments in commands(sound).values():
            if main is not (convergence.main if output == "report" else training.main):
                status, told = answer(capsys, main, *arguments, place / output)
                assert status == 2 and f"{place / output} {NOT_EMPTY}" in told
    assert seen(place) == before


def test_a_sweep_leaves_the_files_of_others_alone(sound, place, capsys):
    swept = "sweep=[{stages.two.args.max_steps: [2, 4]}]"
    run = training.main, sound / "recipe.yaml", "--set", swept, "--set", "seed=1"
    run = *run, "--output-dir", place / "out"
    status, told = answer(capsys, *run)
    assert status == 0, told
    first, second = (place / "out" / point / "seed-1" / "one" for point in ("01", "02"))
    # The second was linked, in which nothing else is but the model's files.
    put(first, "notes.txt")
    shutil.rmtree(second)
    put(place / "out", "notes.txt", "01/notes.txt", "01/seed-1/notes.txt")
    names = ("notes.txt", "01/notes.txt", "01/seed-1/notes.txt", "01/seed-1/one/notes.txt")
    mine = {name: seen(place / "out")[name] for name in names}
    assert answer(capsys, *run, "--resume")[0] == 0
    assert mine.items() <= seen(place / "out").items()
    assert (second / "model.safetensors").samefile(first / "model.safetensors")
    assert not (second / "notes.txt").exists()
    put(place / "out", "sweep.json")
    before = seen(place)
    status, told = answer(capsys, *run, "--resume")
    assert status == 2 and f"{place / 'out' / 'sweep.json'} {NOT_OURS}" in told
    assert seen(place) == before


def test_a_run_that_fails_early_removes_what_it_wrote_and_no_more(
    sound, place, capsys, monkeypatch
):
    def fail(*given):
        put(place, "above/made/notes.txt")
        raise Cut

    (place / "empty").mkdir()
    before = seen(place)
    monkeypatch.setattr("st_jtcse.training.stage.set_seed", fail)
    run = training.main, sound / "recipe.yaml", "--output-dir"
    assert answer(capsys, *run, place / "empty")[0] == 1
    shutil.rmtree(place / "above")
    assert seen(place) == before  # The folder was there before.
    assert answer(capsys, *run, place / "above" / "made" / "out")[0] == 1
    assert [*seen(place / "above")] == ["made", "made/notes.txt"]


def test_a_cache_leaves_the_files_of_others_alone(sound, tmp_path, outside, monkeypatch):
    monkeypatch.setattr(sentences, "_LARGE", 1)
    cache = tmp_path / "cache"
    source = [Source(file=sound / "text.txt")]
    load_sentences(source, cache)
    (file,) = cache.glob("*.arrow")
    whole = file.read_bytes()
    # A link in the place of what earlier versions wrote at first, and notes where parts are kept.
    file.unlink()
    file.with_suffix(".partial").symlink_to(outside / "file")
    put(file.with_suffix(".shards"), "notes.txt", "00000-notes.arrow")
    before = seen(tmp_path)
    load_sentences(source, cache)
    assert file.read_bytes() == whole
    after = {path: state for path, state in seen(tmp_path).items() if not path.endswith(file.name)}
    assert after == before
    # A pipe would be waited for, for ever.
    file.unlink()
    os.mkfifo(file)
    found = []

    def load():
        try:
            load_sentences(source, cache)
        except UserError as error:
            found.append(str(error))

    thread = threading.Thread(target=load, daemon=True)
    thread.start()
    thread.join(60)
    assert found == [f"{file} is not a file; remove it, or choose another cache_dir."]
    file.unlink()
    shutil.rmtree(file.with_suffix(".shards"))
    for suffix in (".shards", ".lock"):
        linked(file.with_suffix(suffix), outside / "folder")
        before = seen(tmp_path)
        with pytest.raises(UserError, match=NOT_OURS):
            load_sentences(source, cache)
        assert seen(tmp_path) == before
        file.with_suffix(suffix).unlink()


@pytest.mark.parametrize("place_of", ["the current folder", "behind a link", "new"])
def test_a_folder_that_cannot_be_replaced_is_filled(sound, tmp_path, monkeypatch, capsys, place_of):
    output = tmp_path / "output"
    given = output
    if place_of != "new":
        output.mkdir()
    if place_of == "the current folder":
        monkeypatch.chdir(output)
        given = "."
    if place_of == "behind a link":
        given = tmp_path / "link"
        given.symlink_to(output)
    inode = output.stat().st_ino if output.exists() else None
    join = convert.main, "join", sound / "a", sound / "b", given, "--cross-attention-every", "1"
    status, told = answer(capsys, *join)
    assert status == 0, told
    assert inode in (None, output.stat().st_ino) and (output / "modules.json").is_file()
    assert not [path for path in tmp_path.rglob(".*")]
    if place_of != "new":
        shutil.rmtree(output / "1_Pooling")
        for path in output.iterdir():
            path.unlink()
        command = diagnose.main, sound / "model", "--pairs", sound / "pairs.jsonl"
        command = *command, "--sample-size", 8, "--output-dir", given
        status, told = answer(capsys, *command)
        assert status == 0, told
        assert (output / "index.html").is_file() and not [path for path in tmp_path.rglob(".*")]
