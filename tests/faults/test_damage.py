"""Files that were cut, changed or lost while nobody looked, and data that are others than before."""

import json
import shutil
from pathlib import Path

import pytest

from faults.conftest import (
    check_that_it_ends_alike,
    check_that_it_has_ended_alike,
    check_what_looks_finished,
    sampled,
)


def cut(path):
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def emptied(path):
    path.write_bytes(b"")


def flipped(path):
    """Change some bits within the last bytes, where safetensors and Arrow have values."""
    content = bytearray(path.read_bytes())
    content[len(content) * 3 // 4] ^= 0x11
    path.write_bytes(content)


def lost(path):
    path.unlink()


def damages(*sample):
    """Parametrize by damages, of which all but the sample's are left to the option."""
    return pytest.mark.parametrize(
        "damage", sampled([cut, emptied, flipped, lost], *sample), ids=lambda one: one.__name__
    )


@pytest.fixture
def halved(undisturbed):
    """Go back to where a stage was trained to its end, without dev or with, or to the middle of the
    stage after.
    """
    paths = {
        "trained": "run/.joint.new",
        "chosen": "run/.distilled.new",
        "taught": "run/distilled/checkpoint-4",
    }
    return lambda name: undisturbed.back_to(undisturbed.first(paths[name]))


def ends_alike_or_is_told(runs, project, undisturbed, stage):
    """The damaged run ends as the undisturbed one did, or is refused with the way out, which then
    leads there.
    """
    ended = runs(project, "--resume")
    assert "Traceback" not in ended.said, ended.said
    if ended.status == 2:
        assert f"delete run/{stage}" in ended.said, ended.said
        shutil.rmtree(project / "run" / stage)
        check_that_it_ends_alike(runs, project, undisturbed)
    else:
        assert ended.status == 0, ended.said
        check_that_it_has_ended_alike(project, undisturbed, ended)


def files_of(folder):
    return sorted(path.relative_to(folder) for path in folder.rglob("*") if path.is_file())


@damages(cut, flipped)
def test_a_damaged_checkpoint_never_changes_the_result(
    runs, halved, undisturbed, damage, every, record_property
):
    checkpoint = max(halved("trained").glob("run/joint/checkpoint-*"))
    chosen = every(files_of(checkpoint), 100, 8 if damage is cut else 5)
    for file in chosen:
        project = halved("trained")
        damage(project / "run" / "joint" / checkpoint.name / file)
        ends_alike_or_is_told(runs, project, undisturbed, "joint")
    record_property("cases", len(chosen))


@damages(cut)
def test_a_damaged_best_checkpoint_is_never_passed_over_silently(runs, halved, undisturbed, damage):
    project = halved("chosen")
    state = json.loads(
        max(project.glob("run/distilled/checkpoint-*/trainer_state.json")).read_text()
    )
    damage(
        project
        / "run"
        / "distilled"
        / f"checkpoint-{state['best_global_step']}"
        / "model.safetensors"
    )
    ends_alike_or_is_told(runs, project, undisturbed, "distilled")


@damages(flipped)
def test_a_finished_stage_whose_weights_are_damaged_is_told(runs, halved, undisturbed, damage):
    project = halved("taught")
    damage(project / "run" / "joint" / "model.safetensors")
    ended = runs(project, "--resume")
    assert (
        ended.status == 2
        and "joint/model.safetensors is" in ended.said
        and "Traceback" not in ended.said
    ), ended.said
    shutil.rmtree(project / "run" / "joint")
    check_that_it_ends_alike(runs, project, undisturbed)


@damages(flipped)
def test_a_damaged_file_of_teacher_vectors_is_computed_again(runs, halved, undisturbed, damage):
    project = halved("taught")
    (vectors,) = project.glob("cache/teacher-*.arrow")
    damage(vectors)
    check_that_it_ends_alike(runs, project, undisturbed)


@pytest.mark.parametrize("file", ["results.json", "joint/training_results.json", "recipe.yaml"])
@damages(cut)
def test_a_damaged_record_is_told_or_written_again(runs, halved, undisturbed, file, damage):
    project = halved("taught")
    whole = (project / "run" / file).read_bytes()
    damage(project / "run" / file)
    ended = runs(project, "--resume")
    assert ended.status in {0, 2} and "Traceback" not in ended.said, ended.said
    if ended.status == 0:
        check_that_it_has_ended_alike(project, undisturbed, ended)
        return
    told = (Path(file).name, "is not empty", "its hash differs from its record")
    assert any(words in ended.said for words in told), ended.said
    (project / "run" / file).write_bytes(whole)
    check_that_it_ends_alike(runs, project, undisturbed)


@pytest.mark.parametrize("file", sampled(["text.txt", "dev.jsonl"], "text.txt"))
def test_changed_data_are_refused_and_the_old_ones_resume(runs, halved, undisturbed, file):
    project = halved("taught")
    lines = (project / file).read_text().splitlines()
    (project / file).write_text("\n".join([*lines[1:], lines[0]]) + "\n")
    ended = runs(project, "--resume")
    assert ended.status == 2 and "other data" in ended.said and "Traceback" not in ended.said, (
        ended.said
    )
    check_what_looks_finished(project)
    (project / file).write_text("\n".join(lines) + "\n")
    check_that_it_ends_alike(runs, project, undisturbed)
