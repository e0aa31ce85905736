"""A run's models on their way to the Hub."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from st_jtcse.errors import UserError
from st_jtcse.hub.card_results import TRAINING_RECORD
from st_jtcse.hub.upload import check_repo, check_token, push
from st_jtcse.recipe.schema import PushSpec, Recipe


def push_plan(recipe: Recipe, asked: bool, chosen: Sequence[str]) -> PushSpec | None:
    """Return where a run's models go: what the recipe says, else, if asked, the last stage's under the recipe's name.

    None if nothing is to be pushed. Raises UserError for a name that cannot be right, no token, no chosen or finished
    stage to push, and several models of a stage.
    """
    if recipe.push is None and not asked:
        return None
    plan = recipe.push or PushSpec(repos={recipe.stages[-1].name: recipe.name}, private=True, collection=None)
    if recipe.sweep or recipe.seeds:
        raise UserError(
            f"{recipe.name} trains several models per stage, so none is the one to push; push one with st-push."
        )
    if not any(stage in chosen or Path(recipe.output_dir, stage, TRAINING_RECORD).is_file() for stage in plan.repos):
        raise UserError(
            f"The stages to push ({', '.join(plan.repos)}) are neither chosen nor finished; choose one with --stage."
        )
    for repo in plan.repos.values():
        check_repo(repo)
    check_token()
    return plan


def push_models(recipe: Recipe, plan: PushSpec) -> list[str]:
    """Push the finished stages that the plan names, and return the models' addresses; raises as `push` does."""
    return [
        push(Path(recipe.output_dir, stage), repo, private=plan.private, collection=plan.collection)
        for stage, repo in plan.repos.items()
        # A run of some of the stages leaves the others for another time.
        if Path(recipe.output_dir, stage, TRAINING_RECORD).is_file()
    ]
