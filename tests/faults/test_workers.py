"""Data workers: how many there are changes no byte, and one that dies ends the run in order."""

from faults.conftest import check_what_looks_finished, weights


def test_data_workers_change_no_byte(runs, project, undisturbed):
    straight = weights(undisturbed.folder)
    for workers, names in ((1, ["encoder"]), (2, [*straight])):
        stages = [part for name in names for part in ("--stage", name)]
        options = [
            "--set",
            f"args.dataloader_num_workers={workers}",
            "--output-dir",
            f"run{workers}",
        ]
        ended = runs(project, *options, *stages)
        assert ended.status == 0, ended.said
        assert weights(project, f"run{workers}") == {name: straight[name] for name in names}


def test_a_data_worker_that_dies_ends_the_run_in_a_line_and_it_resumes(runs, project):
    options = ["--stage", "encoder", "--set", "args.dataloader_num_workers=1"]
    options += ["--set", "args.per_device_train_batch_size=2", "--set", "args.max_steps=12"]
    straight = runs(project, *options, "--output-dir", "straight")
    assert straight.status == 0, straight.said
    place = "straight/encoder/checkpoint-4"
    at = next(n for n, moment in enumerate(straight.moments, 1) if moment["path"].startswith(place))
    # Between two checkpoints, with batches still to come.
    ended = runs(project, *options, fault="worker", at=at)
    assert (
        ended.status == 1 and "DataLoader worker" in ended.said and "Traceback" not in ended.said
    ), ended.said
    check_what_looks_finished(project)
    resumed = runs(project, *options, "--resume")
    assert resumed.status == 0, resumed.said
    assert weights(project) == weights(project, "straight")
