"""The exceptions a user is meant to meet, told without a traceback."""

from __future__ import annotations


class UserError(Exception):
    """The user's input is at fault; each fault is one sentence that names the place and the way out.

    For example ``"recipe.yaml:9 stages[1].data: expected ..., found .... Do ...."``.
    """

    def __init__(self, *faults: str) -> None:
        super().__init__("\n".join(faults))
        self.faults = faults


class PushFailed(Exception):
    """The Hub did not take a model, for reasons that pass; the model is on disk, and the push can be repeated."""
