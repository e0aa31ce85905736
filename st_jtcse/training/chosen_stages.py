"""Whether a run can go through the stages that were chosen."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from st_jtcse import processes
from st_jtcse.errors import UserError
from st_jtcse.recipe.schema import STAGE_PREFIX, StageSpec
from st_jtcse.training.checkpoints import same_data
from st_jtcse.training.run_folder import RunFolder
from st_jtcse.training.stage_inputs import Inputs


def check_earlier(chosen: Sequence[str], stages: Mapping[str, StageSpec], folder: RunFolder) -> None:
    """Raise UserError where a stage to start from is not finished."""
    for name in chosen:
        for earlier in stages[name].earlier:
            if earlier not in chosen and folder.record(earlier) is None:
                raise UserError(
                    f"--stage: {name!r} starts from {STAGE_PREFIX}{earlier}, which is not finished in {folder.path}; "
                    f"add --stage {earlier}."
                )


def check_resumable(
    chosen: Sequence[str], stages: Mapping[str, StageSpec], inputs: Mapping[str, Inputs], folder: RunFolder
) -> None:
    """Raise UserError where going on would not give what an uninterrupted run gives."""
    if processes.rank() == 0:
        for name in dict.fromkeys(name for last in chosen for name in (*stages[last].earlier, last)):
            folder.check_model(name)
    for name in chosen:
        record = folder.record(name)
        without = [key for key in ("save_only_model", "ignore_data_skip") if stages[name].args.get(key)]
        if record is not None:
            same_data(folder.stage(name), record["data_sha256"], inputs[name].hashes)
        elif without:
            raise UserError(
                f"--resume: stage {name!r} sets args.{without[0]}, and cannot go on as if it had not been interrupted; "
                "start anew without it, in another folder with --output-dir."
            )
