"""A run's models on their way to the Hub."""

from __future__ import annotations

from pathlib import Path

from st_jtcse.errors import UserError
from st_jtcse.hub.push import Pushed, check_repo, check_token, push
from st_jtcse.training.publishing_schema import PushSpec
from st_jtcse.training.schema import Recipe


def push_plan(recipe: Recipe, asked: bool) -> PushSpec | None:
    """Return where a run's models go: what the recipe says, else the last stage's under the recipe's name.

    Args:
        recipe: The recipe.
        asked: Whether the command line asks for a push.

    Returns:
        None if nothing is to be pushed.

    Raises:
        UserError: A name cannot be right, there is no token, or the recipe makes more than one model of a stage.
    """
    plan = recipe.push
    if plan is None and asked:
        plan = PushSpec(repos={recipe.stages[-1].name: recipe.name}, private=True, collection=None)
    if plan is None:
        return None
    if recipe.sweep or recipe.seeds:
        raise UserError(
            f"{recipe.name} trains several models a stage, and none of them is the one to push; push one with st-push."
        )
    for repo in plan.repos.values():
        check_repo(repo)
    check_token()
    return plan


def push_models(recipe: Recipe, plan: PushSpec) -> list[Pushed]:
    """Push the finished stages that the plan names.

    Args:
        recipe: The recipe of a run whose stages are on disk.
        plan: From :func:`push_plan`.

    Raises:
        UserError: A model, the token or a repository does not allow it.
        PushFailed: The Hub is busy, at fault or out of reach.
    """
    return [
        push(Path(recipe.output_dir, stage), repo, private=plan.private, collection=plan.collection)
        for stage, repo in plan.repos.items()
        # A run of some of the stages leaves the others for another time.
        if Path(recipe.output_dir, stage).is_dir()
    ]
