"""Every row of the table: what the command answers to a faulty input, and that nothing is left that
looks finished.
"""

import json
import shlex
from collections import Counter

import pytest
from conftest import (
    command_of,
    make_model,
    make_pairs,
    make_sentences,
    run_results,
    save_encoder,
    save_language_model,
    stage_record,
    write_rows,
)

from inputs.table import GROUPS, ROWS
from st_jtcse.modules.twin_encoder import join_towers

RECIPE = """\
name: tiny
seed: 1
output_dir: out
cache_dir: cache
data:
  train: {corpus}
evaluate:
  dev: {pairs}
args:
  max_steps: 2
  per_device_train_batch_size: 8
  use_cpu: true
  disable_tqdm: true
stages:
  - name: one
    model: {base: {model}}
    loss: {type: SimCSELoss}
  - name: two
    model: {base: stage:one}
    loss: {type: SimCSELoss, temperature: 0.1}
"""
LABELLED = """\
name: labelled
output_dir: out
data:
  pairs: {pairs}
args: {max_steps: 2, per_device_train_batch_size: 8, use_cpu: true, disable_tqdm: true}
stages:
  - name: one
    model: {base: {model}}
    loss: {type: CoSENTLoss}
"""
RESULTS = run_results(
    "tiny",
    1,
    stage_record(
        "one",
        spearman={"dev": 80.0},
        log=[{"step": 2, "train_seconds": 1.0, "eval_dev_spearman_cosine": 0.8}],
    ),
)


def filled(text, world):
    for name, path in world.items():
        text = text.replace(f"{{{name}}}", str(path))
    return text


@pytest.fixture(scope="session")
def world(tmp_path_factory):
    """Sound inputs by the names that rows call them by; a row spoils one thing."""
    root = tmp_path_factory.mktemp("sound")
    encoders = [save_encoder(root / f"encoder_{number}", number) for number in (1, 2)]
    make_model(encoders[0]).save_pretrained(str(root / "model"))
    join_towers(*map(str, encoders), str(root / "twin"))
    save_language_model(root / "judge", 1)
    (root / "corpus.txt").write_text(
        "".join(f"{sentence}\n" for sentence in make_sentences(32)), encoding="utf-8"
    )
    write_rows(root / "pairs.jsonl", make_pairs(16, 1))
    (root / "run").mkdir()
    (root / "run/results.json").write_text(json.dumps(RESULTS), encoding="utf-8")
    found = {
        "corpus": root / "corpus.txt",
        "pairs": root / "pairs.jsonl",
        "first": encoders[0],
        "second": encoders[1],
    }
    found |= {name: root / name for name in ("model", "twin", "judge", "run")}
    for name, text in (("recipe", RECIPE), ("labelled", LABELLED)):
        (root / f"{name}.yaml").write_text(filled(text, found), encoding="utf-8")
        found[name] = root / f"{name}.yaml"
    return found


def files_below(folder):
    return {
        str(path.relative_to(folder)): path.read_bytes() if path.is_file() else None
        for path in folder.rglob("*")
    }


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_a_faulty_input_is_told_and_leaves_nothing(row, world, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    for name, content in row.files.items():
        path = tmp_path / filled(name, world)
        path.parent.mkdir(parents=True, exist_ok=True)
        if callable(content):
            content(path, world)
        elif isinstance(content, bytes):
            path.write_bytes(content)
        else:
            path.write_text(filled(content, world), encoding="utf-8")
    before = files_below(tmp_path)
    name, *arguments = shlex.split(filled(row.command, world))
    main = command_of(name.removeprefix("st-"))
    try:
        status = main(arguments)
    except SystemExit as left:
        status = left.code
    told = " ".join(capsys.readouterr().err.split())
    assert filled(row.sentence, world) in told
    assert status == row.status and "Traceback" not in told
    left = {
        name: content for name, content in files_below(tmp_path).items() if name not in row.leaves
    }
    assert left == before


def test_rows_are_many_and_each_is_found_by_its_name():
    assert len(ROWS) >= 120
    assert [name for name, count in Counter(row.name for row in ROWS).items() if count > 1] == []
    commands = {row.command.split()[0] for row in ROWS}
    assert commands == {
        f"st-{name}" for name in "train eval diagnose convert score push convergence".split()
    }
    assert all(GROUPS.values())
