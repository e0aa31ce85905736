"""Data workers: how many there are changes no byte, and one that dies ends the run in order."""

from faults.conftest import check_that_it_ends_alike, check_what_looks_finished, first, weights


def test_data_workers_change_no_byte(runs, project, undisturbed):
    for workers in (1, 2):
        name = f"run{workers}"
        ended = runs(project, "--set", f"args.dataloader_num_workers={workers}", "--output-dir", name)
        assert ended.status == 0, ended.said
        assert weights(project, name) == weights(undisturbed[0])


def test_a_data_worker_that_dies_ends_the_run_in_a_line_and_it_resumes(runs, project, undisturbed):
    workers = ("--set", "args.dataloader_num_workers=2")
    ended = runs(project, *workers, fault="worker", at=first(undisturbed[1], "run/encoder/checkpoint-2"))
    assert ended.status in {1, 2} and "worker" in ended.said, ended.said
    assert "Traceback" not in ended.said, ended.said
    check_what_looks_finished(project)
    check_that_it_ends_alike(runs, project, undisturbed, *workers)
