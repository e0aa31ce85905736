"""What is promised of each fault, and the test that keeps the promise: the table behind
docs/reliability.md.
"""

from typing import NamedTuple


class Promise(NamedTuple):
    """A fault, what is promised of it, and the test of that."""

    fault: str
    promise: str
    test: str  # FILE::FUNCTION, below tests/


ALIKE = (
    "every stage that looks finished loads and has its recorded hash; "
    "`--resume` ends with exit status 0 and the bytes of an undisturbed run"
)
TOLD = "exit status 2 and a message of one sentence; then the same as after a kill"
KILLS, DISKS, DAMAGE = "faults/test_kills.py", "faults/test_disks.py", "faults/test_damage.py"
KINDS, TWO = "faults/test_kinds_of_runs.py", "faults/test_two_processes.py"
NODES = "faults/test_two_nodes.py"
ONCE = "both processes end with exit status 2, and one of them says why, in one line"
RESUME = "training/test_resume_checks.py"
FOREIGN = "test_foreign_files.py"
PROMISES = [
    Promise(
        "kill -9 before each operation that creates, moves or removes a file",
        ALIKE,
        f"{KILLS}::test_a_run_killed_at_a_moment_resumes_to_the_same_bytes",
    ),
    Promise(
        "kill -9 while a file is half written",
        ALIKE,
        f"{KILLS}::test_a_run_killed_while_it_writes_a_file_resumes_to_the_same_bytes",
    ),
    Promise(
        "kill -9 of a run, and again of the resumed run",
        ALIKE,
        f"{KILLS}::test_a_resume_that_is_killed_too_resumes_to_the_same_bytes",
    ),
    Promise(
        "kill -9 while a stage without dev data finishes: each kind of loss and model, at three "
        "moments",
        "`--resume` ends with exit status 0, the same bytes and the same record, and takes no "
        "extra training step",
        "faults/test_finishing.py::test_a_stage_killed_while_it_finishes_resumes_to_the_same_bytes",
    ),
    Promise(
        "notes of yours in every folder of a run that was killed",
        "they are there when `--resume` has ended, with the bytes of an undisturbed run",
        f"{KILLS}::test_notes_in_every_folder_of_a_killed_run_survive",
    ),
    Promise(
        "kill -9 of one of a run's two processes",
        "`--resume` with two processes ends with exit status 0 and the bytes and record of an "
        "undisturbed run of two",
        f"{KILLS}::test_a_run_of_two_processes_one_of_which_is_killed_resumes_to_the_same_bytes",
    ),
    Promise(
        "kill -9 of every other kind of run: held-out text, streams, past sentences in "
        "mini-batches, live teachers, adapters, views, images, whitening",
        ALIKE,
        f"{KINDS}::test_every_kind_of_run_that_is_killed_resumes_to_the_same_bytes",
    ),
    Promise(
        "kill -9 of `st-train adapt`, and `--resume` of one that is finished",
        ALIKE,
        f"{KINDS}::test_adapt_that_is_killed_resumes_to_the_same_bytes",
    ),
    Promise(
        "kill -9 or SIGTERM of a process",
        f"the disk holds what it held at that moment; {ALIKE}",
        f"{KILLS}::test_a_process_killed_leaves_what_the_disk_held_at_its_moment",
    ),
    Promise(
        "Ctrl-C during a run",
        f"exit status 130 and a message of one line; {ALIKE}",
        f"{KILLS}::test_an_interrupted_run_says_so_and_resumes_to_the_same_bytes",
    ),
    Promise(
        "Ctrl-C in the first seconds of a run",
        "no traceback",
        f"{KILLS}::test_an_interrupt_in_the_first_seconds_is_told_too",
    ),
    Promise(
        "`--resume` while another run uses the folder",
        "exit status 2 and a message that names the process using the folder; the first run goes "
        "on",
        f"{KILLS}::test_a_second_run_on_the_folder_is_refused_and_the_first_goes_on",
    ),
    Promise(
        "a disk that becomes full during a run",
        TOLD,
        f"{DISKS}::test_a_disk_that_is_full_from_some_moment_on_is_told_and_the_run_resumes",
    ),
    Promise(
        "a disk of 4 to 512 KB, enlarged before `--resume`",
        TOLD,
        f"{DISKS}::test_a_small_disk_is_told_and_a_larger_one_resumes",
    ),
    Promise(
        "a cache disk too small for the teachers' vectors",
        "exit status 2 and a message with the space needed and free, before the first vector is "
        "written",
        f"{DISKS}::test_a_disk_too_small_for_the_teachers_vectors_is_told_before_the_first",
    ),
    Promise(
        "memory that runs out in a training step",
        "exit status 2 and a message that says what to lower",
        "faults/test_out_of_memory.py::test_a_batch_beyond_the_memory_is_told_with_what_needs_less",
    ),
    Promise(
        "a limit on file sizes", TOLD, f"{DISKS}::test_a_limit_on_files_is_told_and_the_run_resumes"
    ),
    Promise(
        "standard output that is full",
        TOLD,
        f"{DISKS}::test_a_table_that_nobody_can_read_loses_no_model",
    ),
    Promise(
        "a read-only disk", TOLD, f"{DISKS}::test_a_read_only_disk_is_told_and_the_run_resumes"
    ),
    Promise(
        "folders that you may not write to",
        TOLD,
        f"{DISKS}::test_a_folder_without_permission_is_told_and_the_run_resumes",
    ),
    Promise(
        "a data-loading worker that dies",
        "exit status 1, a message of one line and a traceback in a file; `--resume` ends with the "
        "same bytes",
        "faults/test_workers.py::test_a_data_worker_that_dies_ends_the_run_in_a_line_and_it_resumes",
    ),
    Promise(
        "a file of a checkpoint that is cut short, emptied, changed or lost",
        "the checkpoint is never loaded: the stage goes on from an older intact one, or starts "
        "over; the same bytes",
        f"{DAMAGE}::test_a_damaged_checkpoint_never_changes_the_result",
    ),
    Promise(
        "the best checkpoint, if cut short, emptied, changed or lost",
        "the same bytes, or an error that says how to get them",
        f"{DAMAGE}::test_a_damaged_best_checkpoint_is_never_passed_over_silently",
    ),
    Promise(
        "a finished stage's weights, if cut short, emptied, changed or lost",
        "an error that names the file; once you delete the stage's folder, `--resume` gives the "
        "same bytes",
        f"{DAMAGE}::test_a_finished_stage_whose_weights_are_damaged_is_told",
    ),
    Promise(
        "cached teacher vectors, if cut short, emptied, changed or lost",
        "they are computed again; the same bytes",
        f"{DAMAGE}::test_a_damaged_file_of_teacher_vectors_is_computed_again",
    ),
    Promise(
        "a damaged results.json, stage record or recipe.yaml",
        "the file is written again, or an error names it; never a traceback",
        f"{DAMAGE}::test_a_damaged_record_is_told_or_written_again",
    ),
    Promise(
        "training or dev data changed before `--resume`",
        "refused; once you restore the old data, `--resume` gives the same bytes",
        f"{DAMAGE}::test_changed_data_are_refused_and_the_old_ones_resume",
    ),
    Promise(
        "an output folder, of any command, that holds files or links of yours, or is a file",
        "exit status 2 and the same sentence everywhere, before anything is written",
        f"{FOREIGN}::test_a_folder_of_somebody_is_refused_in_the_same_words_by_every_command",
    ),
    Promise(
        "your files, folders and links in the folders of a run that is cut off, fails or is "
        "resumed",
        "they keep their bytes, inodes and paths, and what the links lead to is untouched; the "
        "model is the same",
        f"{FOREIGN}::test_a_run_leaves_the_files_of_others_alone",
    ),
    Promise(
        "a link, or a file of yours, in the place of a result, a lock, a stage or a checkpoint",
        "`--resume` ends with exit status 2 and a message that names it; nothing is changed",
        f"{FOREIGN}::test_what_lies_where_a_run_is_going_to_write_is_refused",
    ),
    Promise(
        "your own run.log in a run's folder",
        "it gets no line and keeps its bytes; the run says so and goes on without a log",
        f"{FOREIGN}::test_a_log_of_somebody_gets_no_line",
    ),
    Promise(
        "your files in the folders of an evaluation, a report, a sweep or the cache",
        "they stay; one in the place of a result is refused with its name",
        f"{FOREIGN}::test_an_evaluation_leaves_the_files_of_others_alone",
    ),
    Promise(
        "a run that fails before its first result",
        "what it wrote is removed, and nothing else",
        f"{FOREIGN}::test_a_run_that_fails_early_removes_what_it_wrote_and_no_more",
    ),
    Promise(
        "standard output that is closed",
        "exit status 2 and a message of one sentence, before anything is begun",
        "cli/test_exit_status.py::test_a_closed_stdout_is_told_before_anything_is_begun",
    ),
    Promise(
        "another number of threads, other versions or other data on `--resume`",
        "other data are refused; a line says what else may change the results",
        f"{RESUME}::test_what_would_change_the_result_is_refused_or_said",
    ),
    Promise(
        "`save_only_model` or `ignore_data_skip` together with `--resume`",
        "refused",
        f"{RESUME}::test_what_cannot_be_gone_on_with_is_refused",
    ),
    Promise(
        "a finished stage with somebody else's code added to its folder",
        "refused; none of it runs",
        f"{RESUME}::test_a_finished_stage_that_came_to_hold_code_runs_none_of_it",
    ),
    Promise(
        "an interrupted run of version 0.1.0",
        "finished stages are kept; a stage whose checkpoint lacks a manifest (its hashes) starts "
        "over and says so",
        "training/test_older_runs.py::test_an_older_run_keeps_what_is_finished_and_starts_its_stage_anew",
    ),
    Promise(
        "models saved by version 0.1.0",
        "the same embeddings as then",
        "modules/test_older_models.py::test_a_saved_model_gives_what_it_gave",
    ),
    Promise(
        "0, 1 or 2 data-loading workers",
        "the same bytes",
        "faults/test_workers.py::test_data_workers_change_no_byte",
    ),
    Promise(
        "a run in another process",
        "the same bytes",
        f"{KILLS}::test_a_forked_run_is_a_fresh_one",
    ),
    Promise(
        "a Hub that becomes unreachable while a model is loaded",
        "a message of one sentence; once the Hub is back, `--resume` gives the same bytes",
        "faults/test_hub.py::test_a_hub_that_vanishes_is_told_and_the_run_goes_on_when_it_is_back",
    ),
    Promise(
        "an upload that the Hub cuts off",
        "it is sent again",
        "hub/test_upload.py::test_an_upload_cut_off_is_sent_again",
    ),
    Promise(
        "a push that fails",
        "a message of one sentence; nothing is half-pushed, and you can repeat the push without "
        "loss",
        "hub/test_upload.py::test_a_push_that_fails_is_told_and_repeated_without_loss",
    ),
    Promise(
        "an output folder that is not empty, met by the writing process of two",
        ONCE,
        f"{TWO}::test_a_folder_that_holds_something_is_refused_once",
    ),
    Promise(
        "a fault of the recipe that both of two processes meet",
        ONCE,
        f"{TWO}::test_a_fault_of_the_recipe_is_told_once",
    ),
    Promise(
        "a disk that becomes full for the writing process of two",
        ONCE,
        f"{TWO}::test_a_disk_that_is_full_for_the_writing_process_is_told_once",
    ),
    Promise(
        "a file of data that one of two processes lacks",
        ONCE,
        f"{TWO}::test_a_file_that_one_process_lacks_is_told_once",
    ),
    Promise(
        "kill -9 of one of two processes, as the other sees it",
        "it ends with exit status 2, and says in one line how to go on",
        f"{TWO}::test_a_process_whose_other_is_killed_says_how_to_go_on",
    ),
    Promise(
        "Ctrl-C in any of two processes",
        "both stop at a checkpoint with exit status 130",
        f"{TWO}::test_an_interruption_of_any_process_stops_both_at_a_checkpoint",
    ),
    Promise(
        "Ctrl-C in a run of two processes, then `--resume`",
        "the bytes of an undisturbed run of two",
        f"{TWO}::test_an_interrupted_run_of_two_processes_resumes_to_the_same_bytes",
    ),
    Promise(
        "kill -9 of one of two processes that `torchrun --max-restarts` starts anew",
        "the run goes on from its last checkpoint to the bytes of an undisturbed run of two",
        f"{TWO}::test_torchrun_restarts_a_run_one_of_whose_processes_is_killed",
    ),
    Promise(
        "a defect in the midst of a step of one of two processes",
        "both end with exit status 1, and the defect is told once",
        f"{TWO}::test_a_defect_in_the_midst_of_a_step_is_told_once",
    ),
    Promise(
        "a port for the processes that is taken",
        "exit status 2 and a message of one line that names it",
        f"{TWO}::test_a_port_that_is_taken_is_told",
    ),
    Promise(
        "two hundred runs of two processes on a busy machine",
        "all end with exit status 0",
        f"{TWO}::test_two_hundred_undisturbed_runs_end_well",
    ),
    Promise(
        "processes of one run with different recipes or versions",
        "exit status 2 before anything is written, and one line with the first difference",
        f"{TWO}::test_other_recipes_are_told_once_with_what_differs",
    ),
    Promise(
        "two machines in place of one",
        "the same bytes as two processes of one machine",
        f"{NODES}::test_two_nodes_make_the_same_bytes_as_two_processes_of_one",
    ),
    Promise(
        "a `cache_dir` that one of two machines does not see",
        "one line that names it, before anything is written",
        f"{NODES}::test_a_cache_that_one_node_does_not_see_is_told_before_anything_is_written",
    ),
    Promise(
        "the loss of one of two machines, then `--resume` on both",
        "the other says in one line how to go on; then the same bytes",
        f"{NODES}::test_a_run_one_of_whose_nodes_is_lost_resumes_to_the_same_bytes",
    ),
    Promise(
        "a network between two machines that is cut for five seconds",
        "the run goes on, to the same bytes",
        f"{NODES}::test_a_wire_that_is_cut_for_a_while_changes_nothing",
    ),
    Promise(
        "a network between two machines that stays cut",
        "both say in one line how to go on, after `args.ddp_timeout`",
        f"{NODES}::test_a_wire_that_stays_cut_ends_both_with_a_line",
    ),
]
