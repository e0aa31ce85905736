"""Memory that runs out in the middle of a step."""

from faults.conftest import ENCODER, write_project


def test_a_batch_beyond_the_memory_is_told_with_what_needs_less(runs, tmp_path):
    project = write_project(tmp_path / "project", [ENCODER], evaluate={})
    (project / "text.txt").write_text("\n".join(f"dog {n} sleeps" for n in range(12_000)))
    batch = ["--set", "args.per_device_train_batch_size=12000", "--set", "args.max_steps=1"]
    # The similarities of two times 12,000 views take 576 MB.
    ended = runs(project, *batch, more_memory=500_000_000)
    assert ended.status == 2 and "Traceback" not in ended.said, ended.said
    assert ended.said.splitlines()[-1] == (
        "Stage 'encoder': memory ran out (576000000 bytes more were wanted); set mini_batch_size "
        "of the loss, lower "
        "args.per_device_train_batch_size (now 12000), lower model.max_seq_length or set "
        "args.gradient_checkpointing: "
        "true."
    )
