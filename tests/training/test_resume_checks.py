"""A resumed run gives the weights of an uninterrupted one, or says in a sentence why it does not go
on.
"""

import json
import logging
import os
import shutil

import pytest
from test_run import project, refusal, results, train, weights  # noqa: F401  # project is a fixture

from st_jtcse.hashing import sha256
from st_jtcse.ownership import claim
from st_jtcse.recipe.load import load_recipe, resolved_yaml
from st_jtcse.recipe.yaml_source import dump
from st_jtcse.training import checkpoints, stage_saving
from st_jtcse.training import stage as stages
from st_jtcse.training.checkpoints import LOSS_SUM, MANIFEST, Checkpoints
from st_jtcse.training.run_folder import RunFolder

pytestmark = pytest.mark.usefixtures("unrehearsed")

ENCODER = ["--stage", "encoder"]
WITHOUT_DEV = [
    "--set",
    "args.eval_strategy=no",
    "--set",
    "args.save_strategy=steps",
    "--set",
    "args.save_steps=2",
]


class Cut(Exception):
    """The end of a process."""


def cut_at_save(monkeypatch, step):
    """Let a run end as a kill does, right after its checkpoint at a step is complete."""
    save = Checkpoints.on_save

    def save_and_end(self, args, state, *rest, **more):
        save(self, args, state, *rest, **more)
        if state.global_step == step:
            raise Cut

    monkeypatch.setattr(Checkpoints, "on_save", save_and_end)


def cut_while_finishing(monkeypatch):
    def end(*rest):
        raise Cut

    monkeypatch.setattr(stage_saving, "describe", end)


def cut(project, *options, **where):  # noqa: F811
    """Run until the cut; the exit status is that of a bug."""
    with pytest.MonkeyPatch.context() as patch:
        cut_at_save(patch, where["step"]) if where else cut_while_finishing(patch)
        assert train(project, *ENCODER, *options) == 1


@pytest.fixture
def run(project):  # noqa: F811
    return project / "run" / "encoder"


@pytest.mark.parametrize("options", [[], WITHOUT_DEV])
def test_a_stage_cut_off_while_it_finishes_takes_no_further_step(project, run, options, capsys):  # noqa: F811
    assert train(project, *ENCODER, *options, "--output-dir", str(project / "straight")) == 0
    cut(project, *options)
    assert len(list((project / "run").glob(".encoder.new.*"))) == 1
    assert (run / "checkpoint-6" / MANIFEST).exists()
    assert train(project, *ENCODER, *options, "--resume") == 0
    (straight,), (resumed,) = (results(project, folder)["stages"] for folder in ("straight", "run"))
    assert resumed["weights_sha256"] == straight["weights_sha256"]
    assert resumed["steps"] == 6 and resumed["best_step"] == straight["best_step"]
    assert resumed["spearman"] == straight["spearman"]


def flip(path, at=-40):
    content = bytearray(path.read_bytes())
    content[at] ^= 1
    path.write_bytes(content)


def halve(path):
    os.truncate(path, path.stat().st_size // 2)


def half_delete(checkpoint):
    for name in ("config.json", "optimizer.pt", "modules.json"):
        (checkpoint / name).unlink()


DAMAGES = {
    "optimizer.pt is missing": lambda checkpoint: (checkpoint / "optimizer.pt").unlink(),
    "scheduler.pt is missing": lambda checkpoint: (checkpoint / "scheduler.pt").unlink(),
    "rng_state.pth is damaged": lambda checkpoint: flip(checkpoint / "rng_state.pth"),
    "model.safetensors is damaged": lambda checkpoint: halve(checkpoint / "model.safetensors"),
    "config.json is missing": half_delete,
    "trainer_state.json is missing": lambda checkpoint: (
        checkpoint / "trainer_state.json"
    ).unlink(),
    "scaler.pt was added": lambda checkpoint: (checkpoint / "scaler.pt").write_bytes(b"a pickle"),
    f"{MANIFEST} is missing": lambda checkpoint: (checkpoint / MANIFEST).unlink(),
    f"{MANIFEST} cannot be read": lambda checkpoint: halve(checkpoint / MANIFEST),
}


def test_a_checkpoint_that_is_not_whole_is_passed_over(project, run, caplog):  # noqa: F811
    assert train(project, *ENCODER, *WITHOUT_DEV, "--output-dir", str(project / "straight")) == 0
    cut(project, *WITHOUT_DEV, step=4)
    shutil.copytree(project / "run", project / "cut")
    for fault, damage in DAMAGES.items():
        shutil.rmtree(project / "run")
        shutil.copytree(project / "cut", project / "run")
        (run / "checkpoint-2" / ".DS_Store").touch()
        damage(run / "checkpoint-4")
        found = checkpoints.last_whole(run)
        assert found == run / "checkpoint-2" and not (run / "checkpoint-4").exists()
        told = (
            f"{run}: skipped incomplete checkpoints, checkpoint-4 ({fault}); the stage goes on "
            "from checkpoint-2"
        )
        assert told in caplog.messages
    assert train(project, *ENCODER, *WITHOUT_DEV, "--resume") == 0
    assert weights(project) == weights(project, "straight")
    # Without any that is whole, the stage starts anew; somebody's folder beside them is nobody's
    # checkpoint.
    shutil.rmtree(project / "run")
    shutil.copytree(project / "cut", project / "run")
    for step in (2, 4):
        flip(run / f"checkpoint-{step}" / "model.safetensors")
    (run / "checkpoint-kept").mkdir()
    with caplog.at_level(logging.INFO):
        assert train(project, *ENCODER, *WITHOUT_DEV, "--resume") == 0
    assert "(model.safetensors is damaged); the stage starts from its beginning" in caplog.text
    assert weights(project) == weights(project, "straight")


def test_the_older_checkpoint_is_kept_until_the_new_one_is_whole(project, run, monkeypatch):  # noqa: F811
    options = [*WITHOUT_DEV, "--set", "args.save_total_limit=1"]
    write = checkpoints.write_atomically

    def write_until_cut(path, text):
        if path.parent.name == "checkpoint-4":
            raise Cut
        write(path, text)

    monkeypatch.setattr(checkpoints, "write_atomically", write_until_cut)
    assert train(project, *ENCODER, *options) == 1
    assert (
        [checkpoints.last_whole(run).name]
        == [path.name for path in run.glob("checkpoint-*")]
        == ["checkpoint-2"]
    )
    monkeypatch.undo()
    cut(project, *options, "--resume", step=6)
    assert [path.name for path in run.glob("[!.]*")] == ["checkpoint-6"]


def test_a_lost_best_checkpoint_is_told_before_anything_is_done(project, capsys):  # noqa: F811
    cut(project)
    best, last = (project / "run" / "encoder" / f"checkpoint-{step}" for step in (4, 6))
    assert checkpoints.state_of(last).best_global_step == 4
    capsys.readouterr()
    whole = (best / "model.safetensors").read_bytes()
    halve(best / "model.safetensors")
    last_state = (last / "optimizer.pt").read_bytes()
    assert train(project, *ENCODER, "--resume") == 2
    error = capsys.readouterr().err
    assert (
        f"{best}, the checkpoint that scored best, is lost (model.safetensors is damaged)" in error
    )
    assert (
        "delete" in error
        and "Traceback" not in error
        and (last / "optimizer.pt").read_bytes() == last_state
    )
    shutil.move(best, project / "elsewhere")
    assert train(project, *ENCODER, "--resume") == 2
    assert (
        f"{best}, the checkpoint that scored best, is lost (it is missing)"
        in capsys.readouterr().err
    )
    # Restored, and in a folder that was moved, it is the result.
    shutil.move(project / "elsewhere", best)
    (best / "model.safetensors").write_bytes(whole)
    shutil.move(project / "run", project / "moved")
    assert train(project, *ENCODER, "--resume", "--output-dir", str(project / "moved")) == 0
    assert train(project, *ENCODER) == 0
    assert weights(project, "moved") == weights(project)


def test_a_best_checkpoint_lost_in_training_is_no_silent_last_one(
    project,  # noqa: F811
    run,
    monkeypatch,
    capsys,
):
    save = Checkpoints.on_save

    def save_and_damage(self, args, state, *rest, **more):
        save(self, args, state, *rest, **more)
        best = run / f"checkpoint-{state.best_global_step}" / "model.safetensors"
        if best.exists():  # The rehearsal saves elsewhere.
            halve(best)

    monkeypatch.setattr(Checkpoints, "on_save", save_and_damage)
    assert train(project, *ENCODER) == 2
    assert (
        "the checkpoint that scored best, is lost (model.safetensors is damaged)"
        in capsys.readouterr().err
    )
    assert not (run / "training_results.json").exists()


def test_what_would_change_the_result_is_refused_or_said(project, run, capsys, caplog, monkeypatch):  # noqa: F811
    cut(project, *WITHOUT_DEV, step=4)
    capsys.readouterr()
    resume = [*ENCODER, *WITHOUT_DEV, "--resume"]
    for name, told in (("text.txt", "train"), ("dev.jsonl", "dev")):
        path = project / name
        whole = path.read_text()
        path.write_text("".join(whole.splitlines(keepends=True)[:-1]))
        error = refusal(project, capsys, *resume)
        assert (
            f"{run / 'checkpoint-4'} was made with other data ({told} changed since); restore them"
            in error
        )
        path.write_text(whole)
    # As on a machine with other threads and another version.
    here = checkpoints.environment()
    monkeypatch.setattr(checkpoints, "environment", lambda: {**here, "threads": 64, "torch": "1.0"})
    assert train(project, *resume) == 0
    assert [line for line in caplog.messages if "was saved with" in line] == [
        f"{run / 'checkpoint-4'} was saved with torch {here['torch']} (now 1.0), threads "
        f"{here['threads']} (now 64): "
        "the weights may differ from those of an uninterrupted run"
    ]
    # A finished stage is of its data too.
    (project / "text.txt").write_text((project / "text.txt").read_text() + "one more\n")
    assert f"{run} was made with other data (train changed since)" in refusal(
        project, capsys, *resume
    )


@pytest.mark.parametrize("argument", ["save_only_model", "ignore_data_skip"])
def test_what_cannot_be_gone_on_with_is_refused(project, run, capsys, argument):  # noqa: F811
    options = [*WITHOUT_DEV, "--set", f"args.{argument}=true"]
    cut(project, *options, step=4)
    capsys.readouterr()
    error = refusal(project, capsys, *ENCODER, *options, "--resume")
    assert f"--resume: stage 'encoder' sets args.{argument}, and cannot go on as if" in error
    if argument == "save_only_model":
        assert checkpoints.last_whole(run) is None


def test_a_finished_stage_whose_files_are_others_is_told(project, run, capsys):  # noqa: F811
    assert train(project, *ENCODER) == 0
    capsys.readouterr()
    file = run / "model.safetensors"
    way_out = (
        f"restore it, or delete {run} and repeat the command with --resume to train the "
        "stage again."
    )
    flip(file)
    for stage in ("encoder", "joint"):
        error = refusal(project, capsys, "--stage", stage, "--resume")
        assert f"{file} is damaged: its hash differs from its record; {way_out}" in error
    flip(file)
    pooling = run / "1_Pooling" / "config.json"
    pooling.write_text(pooling.read_text().replace('"cls"', '"mean"'))
    assert f"{pooling} is damaged: its hash differs" in refusal(
        project, capsys, "--stage", "joint", "--resume"
    )
    record = run / "training_results.json"
    told = json.loads(record.read_text())
    for content, fault in (
        (record.read_text()[:100], "expected JSON, found something else (EOF while parsing"),
        ("[]", "expected a mapping, found a list of 0"),
        (json.dumps(told | {"weights_sha256": 5}), "weights_sha256: expected a mapping, found 5"),
        (
            json.dumps(told | {"spearman": {"dev": "79"}}),
            "spearman.dev: expected a number, found '79'",
        ),
    ):
        record.write_text(content)
        error = refusal(project, capsys, *ENCODER, "--resume")
        assert f"{record} is damaged, or not a stage's record ({fault}" in error
        assert error.strip().endswith(f"); {way_out}")
    record.write_text(json.dumps(told | {"name": "joint"}))
    error = refusal(project, capsys, *ENCODER, "--resume")
    assert f"{record} is of the stage 'joint'; {way_out}" in error
    shutil.rmtree(run)
    assert train(project, *ENCODER, "--resume") == 0
    file.unlink()
    capsys.readouterr()
    assert f"{file} is missing; {way_out}" in refusal(project, capsys, *ENCODER, "--resume")


def test_a_claim_of_which_nothing_came_is_given_up(project, capsys, monkeypatch):  # noqa: F811
    def refuse(*rest):
        raise Cut

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(stages, "set_seed", refuse)
        assert train(project, *ENCODER) == 1
    assert not (project / "run").exists()
    # Nothing is given up that holds more: here the checkpoints of a run that a recipe with another
    # seed may not have.
    cut(project, step=2)
    assert (project / "run" / "recipe.yaml").exists()
    assert "holds the run of another recipe" in refusal(
        project, capsys, *ENCODER, "--set", "seed=8"
    )


def test_a_checkpoint_that_may_not_be_saved_at_the_best_step_is_refused(project, capsys):  # noqa: F811
    error = refusal(project, capsys, "--set", "args.save_steps=4")
    assert (
        "save_steps is 4 and eval_steps 2; remove save_steps, or say 'save_strategy: best'."
        in error
    )


def test_the_home_folder_is_meant_by_its_sign(project, monkeypatch):  # noqa: F811
    monkeypatch.setenv("HOME", str(project / "home"))
    given = ['output_dir="~/run"', "cache_dir=~/cache"]
    recipe = load_recipe(str(project / "recipe.yaml"), given).recipe
    assert (recipe.output_dir, recipe.cache_dir) == (f"{project}/home/run", f"{project}/home/cache")


def test_a_finished_stage_that_came_to_hold_code_runs_none_of_it(project, run, capsys, monkeypatch):  # noqa: F811
    assert train(project, *ENCODER) == 0
    ran = project / "ran"
    evil = (
        f"open({str(ran)!r}, 'w').close()\nfrom "
        "sentence_transformers.sentence_transformer.modules import Normalize\n"
    )
    for place in (run, project):
        (place / "evilmod.py").write_text(f"{evil}class E(Normalize): pass\n")
    monkeypatch.syspath_prepend(str(project))
    listing = json.loads((run / "modules.json").read_text())
    own = {
        "idx": 2,
        "name": "2",
        "path": "2_Own",
        "type": "st_jtcse.modules.pooler_head.PoolerModulusHead",
    }
    foreign = {"idx": 3, "name": "3", "path": "3_E", "type": "evilmod.E"}
    for entry in (own, foreign):
        (run / entry["path"]).mkdir()
        (run / entry["path"] / "config.json").write_text("{}")
    (run / "modules.json").write_text(json.dumps([*listing, own, foreign]))
    config = json.loads((run / "config.json").read_text())
    (run / "config.json").write_text(json.dumps(config | {"auto_map": {"AutoModel": "evilmod.E"}}))
    assert train(project, "--resume") == 2
    assert not ran.exists()
    assert "Traceback" not in capsys.readouterr().err


@pytest.mark.parametrize("written", ["name: x\nstages: [", "stages: []\n", "", "\0"])
def test_a_recipe_that_cannot_be_read_any_more_is_told_as_such(project, run, capsys, written):  # noqa: F811
    assert train(project, *ENCODER, *WITHOUT_DEV) == 0
    held = project / "run" / "recipe.yaml"
    held.write_text(written)
    capsys.readouterr()
    for options in ([], ["--resume"]):
        told = refusal(project, capsys, *ENCODER, *WITHOUT_DEV, *options)
        assert f"holds a run whose recipe cannot be read; restore {held}, or choose" in told
        assert "another recipe" not in told and f"{held}" in told.splitlines()[1]


def test_a_recipe_as_earlier_versions_wrote_it_is_the_same_one(project):  # noqa: F811
    recipe = load_recipe(str(project / "recipe.yaml"), ["evaluate={dev: unlabelled}"]).recipe
    folder = RunFolder(project / "run")
    tree = recipe.model_dump(mode="json") | {"output_dir": "elsewhere"}
    assert tree["evaluate"]["dev"] == {"unlabelled": True}
    tree["evaluate"]["dev"] |= {"split": "train"}  # A default, which no one had given.
    folder.path.mkdir()
    (folder.path / "recipe.yaml").write_text(dump(tree))
    assert folder.holds(recipe)
    tree["evaluate"]["score_range"] = [0, 1]
    (folder.path / "recipe.yaml").write_text(dump(tree))
    assert not folder.holds(recipe)


def test_a_resume_with_nothing_to_resume_says_so_and_begins(project, capsys, monkeypatch):  # noqa: F811
    told = f"nothing to resume in {project / 'run'}; starting anew"
    assert train(project, *ENCODER, "--resume", "--dry-run") == 0
    assert capsys.readouterr().err.splitlines()[0] == told
    # Claimed, and killed before the first checkpoint.
    (project / "run").mkdir()
    recipe = load_recipe(str(project / "recipe.yaml")).recipe
    (project / "run" / "recipe.yaml").write_text(resolved_yaml(recipe))
    assert train(project, *ENCODER, "--resume") == 0
    assert capsys.readouterr().err.splitlines()[0] == told
    assert train(project, *ENCODER, "--resume") == 0
    assert train(project, *ENCODER, "--resume", "--dry-run") == 0
    assert "nothing to resume" not in capsys.readouterr().err
    # Nothing begins in a folder of others.
    (project / "mine").mkdir()
    (project / "mine" / "notes.txt").touch()
    assert train(project, *ENCODER, "--resume", "--output-dir", str(project / "mine")) == 2
    assert "nothing to resume" not in capsys.readouterr().err


def test_the_loss_of_a_resumed_stage_is_that_of_all_its_steps(project):  # noqa: F811
    options = [*WITHOUT_DEV, "--set", "args.logging_steps=4"]
    # Of an epoch's 9 batches the last step has one.
    options += ["--set", "args.gradient_accumulation_steps=4"]
    assert train(project, *ENCODER, *options, "--output-dir", str(project / "straight")) == 0
    cut(project, *options, step=2)
    shutil.copytree(project / "run", project / "cut")
    assert train(project, *ENCODER, *options, "--resume") == 0
    (straight,), (resumed,) = (results(project, folder)["stages"] for folder in ("straight", "run"))
    assert resumed["weights_sha256"] == straight["weights_sha256"]
    whole, own = straight["log"][-1], resumed["log"][-1]
    assert own["step"] == whole["step"] == 6
    assert own["train_loss"] == pytest.approx(whole["train_loss"], rel=1e-6)
    later = straight["log"][0]["loss"]
    assert abs(later - whole["train_loss"]) > 1e-4
    # What a checkpoint does not tell is not claimed.
    place = project / "cut" / "encoder" / "checkpoint-2"
    (place / LOSS_SUM).unlink()
    manifest = json.loads((place / MANIFEST).read_text())
    del manifest["files"][LOSS_SUM]
    (place / MANIFEST).write_text(json.dumps(manifest))
    claim(place, manifest["files"], sha256(place / MANIFEST))
    assert train(project, *ENCODER, *options, "--resume", "--output-dir", str(project / "cut")) == 0
    (record,) = results(project, "cut")["stages"]
    assert "train_loss" not in record["log"][-1] and "train_runtime" in record["log"][-1]
    assert record["weights_sha256"] == straight["weights_sha256"]
