"""What is promised of each fault, and the test that keeps the promise: the table behind docs/reliability.md."""

from typing import NamedTuple


class Promise(NamedTuple):
    """A fault, what is promised of it, and the test of that."""

    fault: str
    promise: str
    test: str  # FILE::FUNCTION, below tests/


ALIKE = "what looks finished loads and has its recorded hash; `--resume` ends with 0 and an undisturbed run's bytes"
TOLD = "exit status 2 and one sentence; then as above"
KILLS, DISKS, DAMAGE = "faults/test_kills.py", "faults/test_disks.py", "faults/test_damage.py"
RESUME = "training/test_resume_checks.py"
PROMISES = [
    Promise(
        "kill -9 at a moment: before each operation that makes, moves or removes a file",
        ALIKE,
        f"{KILLS}::test_a_run_killed_at_a_moment_resumes_to_the_same_bytes",
    ),
    Promise(
        "kill -9 while a file is half written",
        ALIKE,
        f"{KILLS}::test_a_run_killed_while_it_writes_a_file_resumes_to_the_same_bytes",
    ),
    Promise(
        "kill -9 of a resumed run too", ALIKE, f"{KILLS}::test_a_resume_that_is_killed_too_resumes_to_the_same_bytes"
    ),
    Promise(
        "kill -9 while a stage without dev finishes: each kind of loss and model, at three moments",
        "`--resume` ends with 0, the same bytes and the same record, no step more",
        "faults/test_finishing.py::test_a_stage_killed_while_it_finishes_resumes_to_the_same_bytes",
    ),
    Promise(
        "kill -9 or SIGTERM of a process",
        f"the disk is as it was at the moment; {ALIKE}",
        f"{KILLS}::test_a_process_killed_leaves_what_the_disk_held_at_its_moment",
    ),
    Promise(
        "Ctrl-C at a moment",
        f"exit status 130 and one line; {ALIKE}",
        f"{KILLS}::test_an_interrupted_run_says_so_and_resumes_to_the_same_bytes",
    ),
    Promise(
        "Ctrl-C in the first seconds",
        "no traceback",
        f"{KILLS}::test_an_interrupt_in_the_first_seconds_is_told_too",
    ),
    Promise(
        "a second `--resume` beside a run",
        "it is told whose the folder is, exit status 2; the first goes on",
        f"{KILLS}::test_a_second_run_on_the_folder_is_refused_and_the_first_goes_on",
    ),
    Promise(
        "a disk that is full from a moment on",
        TOLD,
        f"{DISKS}::test_a_disk_that_is_full_from_some_moment_on_is_told_and_the_run_resumes",
    ),
    Promise("a disk of 4 to 512 KB, made larger", TOLD, f"{DISKS}::test_a_small_disk_is_told_and_a_larger_one_resumes"),
    Promise("a limit on the size of files", TOLD, f"{DISKS}::test_a_limit_on_files_is_told_and_the_run_resumes"),
    Promise("a full stdout", TOLD, f"{DISKS}::test_a_table_that_nobody_can_read_loses_no_model"),
    Promise("a read-only disk", TOLD, f"{DISKS}::test_a_read_only_disk_is_told_and_the_run_resumes"),
    Promise(
        "folders without permission to write",
        TOLD,
        f"{DISKS}::test_a_folder_without_permission_is_told_and_the_run_resumes",
    ),
    Promise(
        "a data worker that dies",
        "exit status 1, one line and a kept traceback; `--resume` ends with the same bytes",
        "faults/test_workers.py::test_a_data_worker_that_dies_ends_the_run_in_a_line_and_it_resumes",
    ),
    Promise(
        "a file of a checkpoint cut, emptied, changed or lost",
        "never loaded: the stage goes on from an older whole one, or starts anew; the same bytes",
        f"{DAMAGE}::test_a_damaged_checkpoint_never_changes_the_result",
    ),
    Promise(
        "the best checkpoint cut, emptied, changed or lost",
        "the same bytes, or an error with the way to them",
        f"{DAMAGE}::test_a_damaged_best_checkpoint_is_never_passed_over_silently",
    ),
    Promise(
        "a finished stage's weights cut, emptied, changed or lost",
        "an error that names the file; the stage's folder deleted, `--resume` gives the same bytes",
        f"{DAMAGE}::test_a_finished_stage_whose_weights_are_damaged_is_told",
    ),
    Promise(
        "cached teacher vectors cut, emptied, changed or lost",
        "computed again; the same bytes",
        f"{DAMAGE}::test_a_damaged_file_of_teacher_vectors_is_computed_again",
    ),
    Promise(
        "a damaged results.json, stage record or recipe.yaml",
        "written again, or an error that names it; never a traceback",
        f"{DAMAGE}::test_a_damaged_record_is_told_or_written_again",
    ),
    Promise(
        "training or dev data changed before `--resume`",
        "refused; the old data restored, the same bytes",
        f"{DAMAGE}::test_changed_data_are_refused_and_the_old_ones_resume",
    ),
    Promise(
        "other threads, versions or data on `--resume`",
        "data are refused, what may change results is said",
        f"{RESUME}::test_what_would_change_the_result_is_refused_or_said",
    ),
    Promise(
        "`save_only_model`, `ignore_data_skip` beside `--resume`",
        "refused",
        f"{RESUME}::test_what_cannot_be_gone_on_with_is_refused",
    ),
    Promise(
        "a finished stage that came to hold code of somebody else",
        "refused; none of it runs",
        f"{RESUME}::test_a_finished_stage_that_came_to_hold_code_runs_none_of_it",
    ),
    Promise(
        "a run of 0.1.0, interrupted",
        "finished stages are kept; the stage of a checkpoint without a manifest starts anew, which is said",
        "training/test_older_runs.py::test_an_older_run_keeps_what_is_finished_and_starts_its_stage_anew",
    ),
    Promise(
        "models of 0.1.0",
        "the embeddings they gave",
        "modules/test_older_models.py::test_a_saved_model_gives_what_it_gave",
    ),
    Promise("0, 1 or 2 data workers", "the same bytes", "faults/test_workers.py::test_data_workers_change_no_byte"),
    Promise(
        "a run in another process",
        "the same bytes",
        f"{KILLS}::test_a_forked_run_is_a_fresh_one",
    ),
    Promise(
        "a Hub that vanishes while a model is loaded",
        "one sentence; once it is back, `--resume` gives the same bytes",
        "faults/test_hub.py::test_a_hub_that_vanishes_is_told_and_the_run_goes_on_when_it_is_back",
    ),
    Promise(
        "an upload that the Hub cuts off",
        "sent again",
        "hub/test_upload.py::test_an_upload_cut_off_is_sent_again",
    ),
    Promise(
        "a push that fails",
        "one sentence; nothing half-pushed, repeated without loss",
        "hub/test_upload.py::test_a_push_that_fails_is_told_and_repeated_without_loss",
    ),
]
