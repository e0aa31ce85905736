"""Files that were cut, changed or lost while nobody looked, and data that are others than before."""

import json
import shutil
import signal
from pathlib import Path

import pytest

from faults.conftest import check_that_it_ends_alike, check_what_looks_finished, weights


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


DAMAGES = [cut, emptied, flipped, lost]


def first(moments, *parts):
    """The number of the first moment whose path begins with one of some parts."""
    return next(n for n, moment in enumerate(moments, 1) if moment["path"].startswith(parts))


@pytest.fixture(scope="session")
def halves(runs, untouched, undisturbed, tmp_path_factory):
    """Runs killed when a stage is trained to its end, with its best checkpoint and its last; and in the next stage."""

    def killed(name, at):
        folder = tmp_path_factory.mktemp(name) / "project"
        shutil.copytree(untouched, folder)
        assert runs(folder, fault="SIGKILL", at=at).status == -signal.SIGKILL
        return folder

    moments = undisturbed[1]
    return {
        "trained": killed("trained", first(moments, "run/.joint.new")),
        "chosen": killed("chosen", first(moments, "run/.distilled.new")),
        "taught": killed("taught", first(moments, "run/distilled/checkpoint-4")),
    }


def copied(folder, tmp_path):
    shutil.rmtree(tmp_path / "damaged", ignore_errors=True)
    return Path(shutil.copytree(folder, tmp_path / "damaged"))


def ends_alike_or_is_told(runs, project, undisturbed, stage):
    """The damaged run ends as the undisturbed one did, or is refused with the way out, which then leads there."""
    ended = runs(project, "--resume")
    assert "Traceback" not in ended.said, ended.said
    if ended.status == 2:
        assert f"delete run/{stage}" in ended.said, ended.said
        shutil.rmtree(project / "run" / stage)
    else:
        assert ended.status == 0 and weights(project) == weights(undisturbed[0]), ended.said
    check_that_it_ends_alike(runs, project, undisturbed)
    return ended


def files_of(folder):
    return sorted(path.relative_to(folder) for path in folder.rglob("*") if path.is_file())


@pytest.mark.parametrize("damage", DAMAGES, ids=lambda damage: damage.__name__)
def test_a_damaged_checkpoint_never_changes_the_result(
    runs, halves, undisturbed, tmp_path, damage, every, record_property
):
    checkpoint = max(halves["trained"].glob("run/joint/checkpoint-*"))
    chosen = every(files_of(checkpoint), 12, 3 * DAMAGES.index(damage))
    for file in chosen:
        project = copied(halves["trained"], tmp_path)
        damage(project / "run" / "joint" / checkpoint.name / file)
        ends_alike_or_is_told(runs, project, undisturbed, "joint")
    record_property("cases", len(chosen))


@pytest.mark.parametrize("damage", DAMAGES, ids=lambda damage: damage.__name__)
def test_a_damaged_best_checkpoint_is_never_passed_over_silently(runs, halves, undisturbed, tmp_path, damage):
    project = copied(halves["chosen"], tmp_path)
    state = json.loads(max(project.glob("run/distilled/checkpoint-*/trainer_state.json")).read_text())
    damage(project / "run" / "distilled" / f"checkpoint-{state['best_global_step']}" / "model.safetensors")
    ends_alike_or_is_told(runs, project, undisturbed, "distilled")


@pytest.mark.parametrize("damage", DAMAGES, ids=lambda damage: damage.__name__)
def test_a_finished_stage_whose_weights_are_damaged_is_told(runs, halves, undisturbed, tmp_path, damage):
    project = copied(halves["taught"], tmp_path)
    damage(project / "run" / "joint" / "model.safetensors")
    ended = runs(project, "--resume")
    assert ended.status == 2 and "joint/model.safetensors is" in ended.said and "Traceback" not in ended.said, (
        ended.said
    )
    shutil.rmtree(project / "run" / "joint")
    check_that_it_ends_alike(runs, project, undisturbed)


@pytest.mark.parametrize("damage", DAMAGES, ids=lambda damage: damage.__name__)
def test_a_damaged_file_of_teacher_vectors_is_computed_again(runs, halves, undisturbed, tmp_path, damage):
    project = copied(halves["taught"], tmp_path)
    (vectors,) = project.glob("cache/teacher-*.arrow")
    damage(vectors)
    check_that_it_ends_alike(runs, project, undisturbed)


@pytest.mark.parametrize("file", ["results.json", "joint/training_results.json", "recipe.yaml"])
@pytest.mark.parametrize("damage", [cut, emptied, lost], ids=lambda damage: damage.__name__)
def test_a_damaged_record_is_told_or_written_again(runs, halves, undisturbed, tmp_path, file, damage):
    project = copied(halves["taught"], tmp_path)
    whole = (project / "run" / file).read_bytes()
    damage(project / "run" / file)
    ended = runs(project, "--resume")
    assert ended.status in {0, 2} and "Traceback" not in ended.said, ended.said
    if ended.status == 2:
        assert Path(file).name in ended.said or "is not empty" in ended.said, ended.said
        (project / "run" / file).write_bytes(whole)
    check_that_it_ends_alike(runs, project, undisturbed)


@pytest.mark.parametrize("file", ["text.txt", "dev.jsonl"])
def test_changed_data_are_refused_and_the_old_ones_resume(runs, halves, undisturbed, tmp_path, file):
    project = copied(halves["taught"], tmp_path)
    lines = (project / file).read_text().splitlines()
    (project / file).write_text("\n".join([*lines[1:], lines[0]]) + "\n")
    ended = runs(project, "--resume")
    assert ended.status == 2 and "other data" in ended.said and "Traceback" not in ended.said, ended.said
    check_what_looks_finished(project)
    (project / file).write_text("\n".join(lines) + "\n")
    check_that_it_ends_alike(runs, project, undisturbed)
