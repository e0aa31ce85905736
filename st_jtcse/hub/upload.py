"""Pushes a saved model to the Hub in one commit."""

from __future__ import annotations

import logging
import re
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar, cast

from huggingface_hub import CommitOperationAdd, CommitOperationDelete, HfApi, get_token
from huggingface_hub.errors import HfHubHTTPError, HFValidationError, RepositoryNotFoundError
from huggingface_hub.utils import validate_repo_id  # type: ignore[attr-defined]  # Public, but not in its __all__.

from st_jtcse.errors import PushFailed, UserError
from st_jtcse.hub.cards import CARD, updated_card
from st_jtcse.hub.model_files import check_whole, files_to_push
from st_jtcse.hub.model_form import model_form
from st_jtcse.modules.model_folders import ADAPTER, CONFIG, MODULES

logger = logging.getLogger(__name__)
Result = TypeVar("Result")
# What the client raises: its transport library's base class of all errors, whichever library that
# is; Xet's errors are Python's; and the failure of a single file's upload has the error itself as
# its cause.
HUB_ERRORS = cast(
    "tuple[type[Exception], ...]",
    (
        *(base for base in HfHubHTTPError.__bases__ if base is not OSError),
        ConnectionError,
        RuntimeError,
    ),
)
# Seconds before each further attempt, and the most that a server may ask for.
_WAITS, _LONGEST_WAIT = (1.0, 2.0, 4.0, 8.0), 60.0
_WEIGHTS = re.compile(
    rf"(\.safetensors|\.safetensors\.index\.json|pytorch_model[^/]*\.bin|{ADAPTER})$"
)
_SETTINGS = "https://huggingface.co/settings/tokens"


def check_repo(repo: str) -> None:
    """Refuse with a UserError a name that no repository can have."""
    try:
        validate_repo_id(repo)
    except HFValidationError as error:
        raise UserError(
            f"{repo!r} cannot name a repository: {' '.join(str(error).split())}"
        ) from None


def check_token() -> str:
    """Return the token for the Hub, from where huggingface_hub keeps it; without one raises
    UserError.
    """
    token = get_token()
    if token is None:
        raise UserError(
            "There is no token for the Hub; log in with `hf auth login`, or set HF_TOKEN."
        )
    return token


def push(
    folder: Path,
    repo: str,  # without an owner, that of the token
    *,
    private: bool = True,  # a repository that is new
    # The title of a collection of the same owner to add the model to; it is made if missing.
    collection: str | None = None,
    force: bool = False,  # replace a model of another kind
) -> str:
    """Push a saved model in one commit, and return its page's address.

    Its card gets the repository's name and the results in the folder; what no model is made of
    stays there. In a repository that is there already, weights that the folder has not are deleted,
    lest they be loaded in place of the new ones. Raises UserError where the folder, the token or
    the repository does not allow it, PushFailed where the Hub is busy, at fault or out of reach,
    also after several attempts.
    """
    check_repo(repo)
    files = files_to_push(folder)
    check_whole(folder, files)
    if files.note:
        logger.warning(files.note)
    token, target = check_token(), repo
    api = HfApi(token=token)
    try:
        # Asked in any case: a token that is no longer valid is told before anything else.
        user = _patiently(api.whoami)
        target = repo if "/" in repo else f"{user['name']}/{repo}"
        if not force:
            _check_kind(api, target, folder)
        card = updated_card(folder, target)
        _patiently(lambda: api.create_repo(target, private=private, exist_ok=True))
        # The files there are listed anew: a commit whose answer was lost has deleted some.
        _patiently(lambda: _commit(api, target, folder, files.sent, card))
        if collection is not None:
            _collect(api, target, collection, private)
    except HUB_ERRORS as error:
        if isinstance(error, RuntimeError) and error.__cause__ is None:
            raise  # Not the client's.
        raise _told(error, target, folder, token) from None
    return f"{api.endpoint}/{target}"


def _collect(api: HfApi, repo: str, title: str, private: bool) -> None:
    """Add a repository to a collection of its owner."""
    known: Any = {"namespace": repo.partition("/")[0], "private": private, "exists_ok": True}
    made = _patiently(lambda: api.create_collection(title, **known))
    _patiently(lambda: api.add_collection_item(made.slug, repo, "model", exists_ok=True))


def _present_files(api: HfApi, repo: str) -> list[str]:
    try:
        return _patiently(lambda: api.list_repo_files(repo))
    except RepositoryNotFoundError:
        return []


def _check_kind(api: HfApi, repo: str, folder: Path) -> None:
    """Refuse to put a model in another one's place, whose users would not expect it."""
    form = model_form(folder)
    with tempfile.TemporaryDirectory() as place:
        for name in _present_files(api, repo):
            if Path(name).name in (CONFIG, MODULES):
                _patiently(lambda name=name: api.hf_hub_download(repo, name, local_dir=place))  # type: ignore[misc]
        there = model_form(Path(place))
    if there.architecture is not None and str(there) != str(form):
        raise UserError(
            f"{repo} holds a {there}, and this model is a {form}; choose another repository, or "
            "force the push."
        )


def _commit(api: HfApi, repo: str, folder: Path, files: dict[str, int], card: str) -> None:
    """Make the commit, its content anew for each attempt because the client marks what it has
    uploaded.
    """
    changes: list[CommitOperationAdd | CommitOperationDelete] = []
    for name in files:
        content = card.encode() if name == CARD else folder / name
        changes.append(CommitOperationAdd(name, content))
    for name in _present_files(api, repo):
        if name not in files and _WEIGHTS.search(name):
            changes.append(CommitOperationDelete(name))
    api.create_commit(repo, changes, commit_message="Add the model")


def _told(error: Exception, repo: str, folder: Path, token: str) -> UserError | PushFailed:
    """Return what to tell of an error that no further attempt can help; the token is in
    no message.
    """
    status = _status_of(error)
    again = (
        f"the model is safe in {folder}: st-push {folder} {repo} repeats the push without training"
    )
    known = {
        401: "The Hub does not accept this token; log in again with `hf auth login`, or make one "
        f"at {_SETTINGS}.",
        403: f"The token may not write to {repo}; use one with write access to it ({_SETTINGS}).",
        413: f"The Hub refused a file of {folder} as too large; save the model with a smaller "
        "max_shard_size.",
    }
    if status in known:
        return UserError(known[status])
    if _may_pass(status):
        return PushFailed(
            f"Pushing {repo} failed after several attempts ({_brief(error)}); {again}."
        )
    said = error.server_message if isinstance(error, HfHubHTTPError) else None
    reason = " ".join((said or _brief(error)).split()).replace(token, "***")
    return UserError(
        f"The Hub refused {repo} (status {status}: {reason}); change what it names, and {again}."
    )


def _patiently(call: Callable[[], Result]) -> Result:
    """Make a call; again, up to four times, while the Hub is busy (429), at fault (5xx) or out of
    reach.

    The client repeats some of its calls by itself; those that it makes once only, a commit among
    them, come here. Raises the last attempt's error, or one that another attempt would meet again.
    """
    for wait in _WAITS:
        try:
            return call()
        except HUB_ERRORS as error:
            # Before a RuntimeError the client itself has been patient.
            if isinstance(error, RuntimeError) or not _may_pass(_status_of(error)):
                raise
            headers: Any = getattr(getattr(error, "response", None), "headers", {})
            asked = headers.get("Retry-After", "")
            seconds = min(max(wait, float(asked) if asked.isdecimal() else 0.0), _LONGEST_WAIT)
            logger.warning(
                "The Hub could not do it (%s); trying again in %.0f s.", _brief(error), seconds
            )
            time.sleep(seconds)
    return call()


def _status_of(error: Exception) -> int | None:
    """Return the HTTP status behind an error; None if no answer came."""
    while isinstance(error, RuntimeError) and isinstance(error.__cause__, Exception):
        error = error.__cause__
    return getattr(getattr(error, "response", None), "status_code", None)


def _may_pass(status: int | None) -> bool:
    """Whether what is behind a status is over after a while."""
    return status is None or status == 429 or status >= 500


def _brief(error: Exception) -> str:
    """Say in a few words what happened."""
    status = _status_of(error)
    if status:
        return f"status {status}"
    return type(error).__name__
