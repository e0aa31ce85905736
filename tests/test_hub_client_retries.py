"""What the real client does when the Hub fails: which requests it repeats, how often, what the
caller sees.

Pushing adds only what is missing here, so these are facts about huggingface_hub to notice when they
change.
"""

import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import httpx2
import numpy as np
import pytest
from huggingface_hub import CommitOperationAdd, HfApi, hf_hub_download, snapshot_download
from huggingface_hub.errors import HfHubHTTPError, LocalEntryNotFoundError

COMMIT = "/api/models/org/model/commit/main"
WEIGHTS = "/org/model/resolve/main/model.safetensors"


@pytest.fixture
def api(hub):
    api = HfApi(endpoint=hub.endpoint, token=hub.write_token)
    api.create_repo("org/model")
    return api


@pytest.fixture
def weights():
    return np.random.default_rng(0).bytes(3_000_000)


@pytest.fixture
def pushed(hub, api, weights):
    push(api, weights)
    hub.requests.clear()


@pytest.fixture(autouse=True)
def waits(monkeypatch):
    """The pauses the client asks for, without their time."""
    asked = []
    for module in ("utils._http", "file_download"):
        monkeypatch.setattr(f"huggingface_hub.{module}.time", SimpleNamespace(sleep=asked.append))
    return asked


def push(api, weights):
    additions = [
        CommitOperationAdd("README.md", b"---\nlicense: apache-2.0\n---\n"),
        CommitOperationAdd("model.safetensors", weights),
    ]
    return api.create_commit("org/model", additions, commit_message="Add the model")


def outcome(call):
    """What the call raises, None if it succeeds."""
    try:
        call()
    except Exception as error:
        return error
    return None


def status(error):
    return error.response.status_code


# What a push asks of the Hub, and whether the client asks again after a passing failure.
PUSHING = {
    "whoami": ("GET", "/api/whoami-v2", False),
    "create_repo": ("POST", "/api/repos/create", False),
    "model_info": ("GET", "/api/models/org/model", False),
    "validate_yaml": ("POST", "/api/validate-yaml", False),
    "preupload": ("POST", "/api/models/org/model/preupload/main", True),
    "lfs_batch": ("POST", "/org/model.git/info/lfs/objects/batch", True),
    "lfs_upload": ("PUT", "/upload/*", True),
    "lfs_verify": ("POST", "/org/model.git/info/lfs/objects/verify", True),
    "commit": ("POST", COMMIT, False),
    "tree": ("GET", "/api/models/org/model/tree/main", True),
    "paths_info": ("POST", "/api/models/org/model/paths-info/main", False),
    "commits": ("GET", "/api/models/org/model/commits/main", True),
    "settings": ("PUT", "/api/models/org/model/settings", False),
    "collection": ("POST", "/api/collections", False),
    "collection_item": ("POST", "/api/collections/*/items", False),
}


def push_everything(api, weights):
    """All of them."""
    api.whoami()
    api.create_repo("org/model", exist_ok=True)
    api.model_info("org/model")
    push(api, weights)
    list(api.list_repo_tree("org/model"))
    api.get_paths_info("org/model", ["README.md"])
    api.list_repo_commits("org/model")
    api.update_repo_settings("org/model", private=True)
    collection = api.create_collection("Models", namespace="org", exists_ok=True)
    api.add_collection_item(collection.slug, "org/model", "model", exists_ok=True)


@pytest.mark.parametrize("code", [429, 503])
@pytest.mark.parametrize("name", PUSHING)
def test_passing_failures_are_retried_where_the_client_backs_off(
    hub, api, weights, waits, name, code
):
    method, path, retried = PUSHING[name]
    hub.requests.clear()
    hub.fail(method, path, status=code, headers={"Retry-After": "7"})
    error = outcome(lambda: push_everything(api, weights))
    if retried:
        assert error is None
        assert (hub.count(method, path), waits) == (2, [8.0])
    else:
        assert isinstance(error, HfHubHTTPError)
        assert (status(error), hub.count(method, path), waits) == (code, 1, [])


@pytest.mark.parametrize("code", [401, 413])
@pytest.mark.parametrize("name", PUSHING)
def test_refusals_are_never_retried(hub, api, weights, waits, name, code):
    method, path, _ = PUSHING[name]
    hub.requests.clear()
    hub.fail(method, path, status=code)
    error = outcome(lambda: push_everything(api, weights))
    if (name, code) == ("create_repo", 401):
        # With exist_ok a refusal is forgotten where the repository is there already.
        assert error is None
        return
    if name in ("lfs_upload", "lfs_verify"):
        assert str(error) == "Error while uploading 'model.safetensors' to the Hub."
        error = error.__cause__
    assert isinstance(error, HfHubHTTPError)
    assert (status(error), hub.count(method, path), waits) == (code, 1, [])


def test_an_upload_is_given_up_after_six_requests_and_leaves_no_commit(hub, api, weights, waits):
    hub.fail("PUT", "/upload/*", status=503, times=6)
    error = outcome(lambda: push(api, weights))
    assert isinstance(error, RuntimeError)
    assert status(error.__cause__) == 503
    assert (hub.count("PUT", "/upload/*"), waits) == (6, [1, 2, 4, 8, 8])
    assert hub.count("POST", COMMIT) == 0
    assert set(hub.repositories["org/model"].files()) == {".gitattributes"}


def test_a_cut_upload_is_sent_again_whole(hub, api, weights, waits, tmp_path):
    (tmp_path / "model.safetensors").write_bytes(weights)
    hub.cut("PUT", "/upload/*", after_bytes=1_000_000, times=2)
    api.upload_folder(repo_id="org/model", folder_path=tmp_path, allow_patterns="*.safetensors")
    assert (hub.count("PUT", "/upload/*"), waits) == (3, [1, 2])
    assert hub.repositories["org/model"].files()["model.safetensors"] == weights
    assert len(hub.repositories["org/model"].commits) == 2


def test_an_upload_cut_six_times_ends_in_a_transport_error(hub, api, weights):
    hub.cut("PUT", "/upload/*", after_bytes=1_000_000, times=6)
    error = outcome(lambda: push(api, weights))
    assert isinstance(error, RuntimeError)
    assert isinstance(error.__cause__, httpx2.TransportError)
    assert not isinstance(error.__cause__, OSError | HfHubHTTPError)
    assert hub.count("PUT", "/upload/*") == 6
    assert hub.repositories["org/model"].large_objects == {}


def test_what_was_uploaded_before_a_failed_commit_is_not_sent_again(hub, api, weights):
    hub.fail("POST", COMMIT, status=503)
    assert status(outcome(lambda: push(api, weights))) == 503
    push(api, weights)
    assert (hub.count("PUT", "/upload/*"), hub.count("POST", COMMIT)) == (1, 2)
    assert len(hub.repositories["org/model"].commits) == 2


def test_a_cut_commit_is_not_made_and_not_retried(hub, api, weights):
    hub.cut("POST", COMMIT, after_bytes=10)
    error = outcome(lambda: push(api, weights))
    assert isinstance(error, httpx2.TransportError)
    assert hub.count("POST", COMMIT) == 1
    assert len(hub.repositories["org/model"].commits) == 1


def test_a_commit_whose_answer_is_lost_is_made_and_a_second_push_finds_it(hub, api, weights):
    hub.lose_answer("POST", COMMIT)
    assert isinstance(outcome(lambda: push(api, weights)), httpx2.RemoteProtocolError)
    assert len(hub.repositories["org/model"].commits) == 2
    assert push(api, weights).oid == hub.repositories["org/model"].head.oid
    assert hub.count("POST", COMMIT) == 1


def test_old_additions_or_no_parent_make_a_second_commit_after_a_lost_answer(hub, api):
    additions = [CommitOperationAdd("a.txt", b"a")]
    hub.lose_answer("POST", COMMIT)
    outcome(lambda: api.create_commit("org/model", additions, commit_message="Add"))
    # What the additions learned of the repository the first time is out of date.
    api.create_commit("org/model", additions, commit_message="Add")
    messages = [commit.message for commit in hub.repositories["org/model"].commits]
    assert messages == ["initial commit", "Add", "Add"]

    parent = hub.repositories["org/model"].head.oid
    additions = [CommitOperationAdd("b.txt", b"b")]
    hub.lose_answer("POST", COMMIT)
    outcome(
        lambda: api.create_commit(
            "org/model", additions, commit_message="More", parent_commit=parent
        )
    )
    error = outcome(
        lambda: api.create_commit(
            "org/model", additions, commit_message="More", parent_commit=parent
        )
    )
    assert status(error) == 412
    assert len(hub.repositories["org/model"].commits) == 4


def push_with_xet(hub, tmp_path, names):
    """What upload_folder of these files prints where Xet is not switched off, as by default."""
    folder = tmp_path / "folder"
    folder.mkdir()
    for name in names:
        (folder / name).write_text("{}")
    code = f"""if True:
    from huggingface_hub import upload_folder
    try:
        upload_folder(repo_id="org/model", folder_path={str(folder)!r}, commit_message="Add")
    except Exception as error:
        print([kind.__name__ for kind in type(error).__mro__], error)
    """
    environment = {**hub.environment(tmp_path / "home", hub.write_token), "HF_HUB_DISABLE_XET": "0"}
    return subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True
    )


def test_with_xet_upload_folder_repeats_a_commit_whose_answer_is_lost(hub, api, tmp_path):
    hub.lose_answer("POST", COMMIT)
    assert push_with_xet(hub, tmp_path, ["config.json"]).stdout == ""
    assert [commit.message for commit in hub.repositories["org/model"].commits] == [
        "initial commit",
        "Add",
        "Add",
    ]


def test_with_xet_a_refused_upload_is_no_error_of_the_client(hub, api, tmp_path):
    token = "/api/models/org/model/xet-write-token/main"
    hub.fail("GET", token, status=403)
    done = push_with_xet(hub, tmp_path, ["config.json", "model.safetensors"])
    assert "['ConnectionError', 'OSError', 'Exception'" in done.stdout
    assert "403 Forbidden" in done.stdout
    assert (hub.count("GET", token), hub.count("POST", COMMIT)) == (1, 0)


def test_a_large_download_closed_halfway_is_resumed_by_range(hub, api, waits):
    # The client keeps what it has read in pieces of 10 MiB: what is left of a piece is asked for
    # again.
    weights = np.random.default_rng(0).bytes(24 * 2**20)
    push(api, weights)
    hub.requests.clear()
    hub.cut("GET", "/download/*", after_bytes=15 * 2**20)
    path = hf_hub_download("org/model", "model.safetensors")
    assert Path(path).read_bytes() == weights
    parts = [request.range for request in hub.requests if request.path.startswith("/download/")]
    assert (parts, waits) == ([None, f"bytes={10 * 2**20}-"], [1])


def test_a_download_gives_up_after_six_closed_connections_in_a_row(hub, pushed, tmp_path):
    hub.cut("GET", "/download/*", after_bytes=1_000_000, times=6)
    error = outcome(lambda: hf_hub_download("org/model", "model.safetensors"))
    assert isinstance(error, httpx2.RemoteProtocolError)
    assert hub.count("GET", "/download/*") == 6
    assert not list(tmp_path.rglob("*.incomplete"))


def test_a_reset_download_is_not_resumed(hub, pushed):
    hub.cut("GET", "/download/*", after_bytes=1_000_000, reset=True)
    assert isinstance(
        outcome(lambda: hf_hub_download("org/model", "model.safetensors")), httpx2.ReadError
    )
    assert hub.count("GET", "/download/*") == 1


@pytest.mark.parametrize(
    ("code", "retried"), [(408, True), (429, True), (500, False), (503, False), (401, False)]
)
def test_a_download_waits_for_a_rate_limit_but_not_for_a_server_that_is_down(
    hub, pushed, waits, code, retried
):
    hub.fail("GET", "/download/*", status=code)
    error = outcome(lambda: hf_hub_download("org/model", "model.safetensors"))
    if retried:
        assert (error, hub.count("GET", "/download/*"), waits) == (None, 2, [1])
    else:
        assert isinstance(error, HfHubHTTPError)
        assert (status(error), hub.count("GET", "/download/*"), waits) == (code, 1, [])


@pytest.mark.parametrize("code", [408, 429, 500, 503])
def test_the_question_for_a_file_is_asked_once_at_once_and_then_with_pauses(
    hub, pushed, waits, code
):
    hub.fail("HEAD", WEIGHTS, status=code, times=3)
    assert outcome(lambda: hf_hub_download("org/model", "model.safetensors")) is None
    assert (hub.count("HEAD", WEIGHTS), waits) == (4, [1, 2])
    hub.fail("HEAD", "*/README.md", status=code, times=7)
    error = outcome(lambda: hf_hub_download("org/model", "README.md"))
    assert isinstance(error, LocalEntryNotFoundError)
    assert status(error.__cause__) == code
    assert hub.count("HEAD", "*/README.md") == 7


def test_a_snapshot_fails_at_once_when_the_model_cannot_be_looked_up(hub, pushed):
    info = "/api/models/org/model/revision/main"
    hub.fail("GET", info, status=503)
    error = outcome(lambda: snapshot_download("org/model"))
    assert isinstance(error, LocalEntryNotFoundError)
    assert status(error.__cause__) == 503
    hub.lose_answer("GET", info)
    assert isinstance(outcome(lambda: snapshot_download("org/model")), httpx2.RemoteProtocolError)
    assert hub.count("GET", info) == 2


def test_a_snapshot_cut_short_is_completed_by_the_next_one(hub, pushed, weights):
    hub.cut("GET", "/download/*", after_bytes=1_000_000, reset=True)
    assert isinstance(outcome(lambda: snapshot_download("org/model")), httpx2.ReadError)
    folder = Path(snapshot_download("org/model"))
    assert (folder / "model.safetensors").read_bytes() == weights
