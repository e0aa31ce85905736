"""st-push to a Hub on loopback, by the real client: one commit, every fault survived or told, no
token in sight.
"""

import json
import shutil

import pytest
from conftest import make_model, make_pipeline
from huggingface_hub import HfApi, ModelCard, snapshot_download

from st_jtcse.cli.push import main
from st_jtcse.hub.model_files import LARGEST_FILE, files_to_push
from st_jtcse.modules import save_for_inference

COMMIT = "/api/models/*/commit/*"


@pytest.fixture(scope="module")
def twin(tower_folders, tmp_path_factory):
    folder = tmp_path_factory.mktemp("push") / "twin"
    save_for_inference(make_pipeline(tower_folders), folder)
    return folder


@pytest.fixture
def folder(twin, tmp_path):
    return shutil.copytree(twin, tmp_path / "twin")


@pytest.fixture(autouse=True)
def impatient(monkeypatch):
    """Nobody waits, neither we nor the client."""
    monkeypatch.setattr("time.sleep", lambda seconds: None)


@pytest.fixture
def login(hub, monkeypatch):
    monkeypatch.setenv("HF_TOKEN", hub.write_token)


@pytest.fixture
def push(hub, folder, capsys):
    """Run st-push and return its exit status and what it said, in which no token may be."""

    def run(repo="org/twin", *options, place=folder):
        status = main([str(place), repo, *options])
        told = capsys.readouterr()
        for token in (hub.write_token, hub.read_token, hub.stranger_token):
            assert token not in told.out + told.err
        for repository in hub.repositories.values():
            for content in repository.files().values():
                assert hub.write_token.encode() not in content
        return status, told.out + told.err

    return run


def contents(folder):
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }


@pytest.mark.usefixtures("login")
def test_a_push_is_one_commit_of_a_private_repository(hub, push, folder):
    status, told = push()
    repository = hub.repositories["org/twin"]
    assert (status, repository.private) == (0, True)
    assert f"{hub.endpoint}/org/twin" in told
    assert len(repository.commits) == 2  # The Hub's own, and ours.
    sent = {
        name: content for name, content in repository.files().items() if name != ".gitattributes"
    }
    local = contents(folder)
    card = sent.pop("README.md").decode()
    assert sent == {name: content for name, content in local.items() if name != "README.md"}
    assert (
        'SentenceTransformer("org/twin")' in card and "sentence_transformers_model_id" not in card
    )
    assert "Unknown: this model came without results." in card


@pytest.mark.usefixtures("login")
def test_a_name_without_an_owner_is_ones_own_and_public_if_asked(hub, push):
    assert push("twin", "--public")[0] == 0
    assert not hub.repositories["tester/twin"].private


@pytest.mark.usefixtures("login")
def test_what_is_pushed_comes_back(hub, push, folder, tmp_path):
    assert push()[0] == 0
    back = snapshot_download(
        "org/twin", token=hub.read_token, local_dir=tmp_path / "back", endpoint=hub.endpoint
    )
    found = contents(tmp_path / "back")
    assert back and all(
        found[name] == data for name, data in contents(folder).items() if name != "README.md"
    )


@pytest.mark.usefixtures("login")
def test_a_dry_run_lists_files_and_sends_nothing(hub, push, folder):
    status, told = push("org/twin", "--dry-run")
    assert status == 0 and not hub.requests
    size = (folder / "model.safetensors").stat().st_size
    assert "model.safetensors" in told and f"{size:,}" in told
    assert f"{sum(files_to_push(folder).sent.values()):,}" in told


def test_hidden_files_and_checkpoints_stay_here(folder):
    before = set(contents(folder))
    for name in (".cache/secret", "checkpoint-10/optimizer.pt", ".token"):
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text("x")
    assert set(files_to_push(folder).sent) == before


@pytest.mark.usefixtures("login")
@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/api/whoami-v2"),
        ("POST", "/api/repos/create"),
        ("POST", "/api/models/*/preupload/*"),
        ("POST", "/*info/lfs/objects/batch"),
        ("PUT", "/upload/*"),
        ("POST", COMMIT),
        ("POST", "/api/collections"),
    ],
)
@pytest.mark.parametrize("status", [429, 503])
def test_a_busy_hub_is_asked_again(method, path, status, hub, push):
    hub.fail(method, path, status=status, times=2, headers={"Retry-After": "1"})
    assert push("org/twin", "--collection", "Twins")[0] == 0
    assert hub.count(method, path) >= 3
    assert len(hub.repositories["org/twin"].commits) == 2


@pytest.mark.usefixtures("login")
def test_an_upload_cut_off_is_sent_again(hub, push):
    hub.cut("PUT", "/upload/*", after_bytes=20_000, times=2)
    assert push()[0] == 0
    assert hub.count("PUT", "/upload/*") == 3
    assert len(hub.repositories["org/twin"].commits) == 2


@pytest.mark.usefixtures("login")
def test_a_commit_whose_answer_is_lost_is_not_made_twice(hub, push, folder):
    hub.lose_answer("POST", COMMIT)
    assert push()[0] == 0
    repository = hub.repositories["org/twin"]
    assert len(repository.commits) == 2
    assert repository.files()["model.safetensors"] == (folder / "model.safetensors").read_bytes()


@pytest.mark.usefixtures("login")
@pytest.mark.parametrize(
    ("method", "path"), [("POST", COMMIT), ("PUT", "/upload/*"), ("GET", "/api/whoami-v2")]
)
def test_a_push_that_fails_is_told_and_repeated_without_loss(method, path, hub, push, folder):
    before = contents(folder)
    hub.fail(method, path, status=503, times=40)
    status, told = push()
    assert status == 1
    assert told.strip().splitlines()[-1] == (
        "Pushing org/twin failed after several attempts (status 503); the model is safe in "
        f"{folder}: "
        f"st-push {folder} org/twin repeats the push without training."
    )
    assert "Traceback" not in told and contents(folder) == before
    assert "org/twin" not in hub.repositories or len(hub.repositories["org/twin"].commits) == 1
    hub.heal()
    sent = hub.count("PUT", "/upload/*")
    assert push()[0] == 0
    # What had arrived is not sent again.
    assert hub.count("PUT", "/upload/*") - sent == (0 if path == COMMIT else 1)
    assert len(hub.repositories["org/twin"].commits) == 2


@pytest.mark.usefixtures("login")
def test_a_hub_out_of_reach_is_told(push, hub, folder):
    hub.cut("GET", "/api/whoami-v2", after_bytes=0, times=20)
    status, told = push()
    assert status == 1 and "after several attempts" in told and f"st-push {folder} org/twin" in told


@pytest.mark.usefixtures("login")
def test_a_file_that_the_hub_finds_too_large_is_told(hub, push):
    hub.fail("PUT", "/upload/*", status=413, times=5)
    status, told = push()
    assert status == 2 and "too large" in told
    assert len(hub.repositories["org/twin"].commits) == 1


def test_without_a_token_the_way_to_one_is_told(hub, push):
    assert push() == (
        2,
        "There is no token for the Hub; log in with `hf auth login`, or set HF_TOKEN.\n",
    )
    assert not hub.requests


def test_a_wrong_token_is_told(hub, push, monkeypatch):
    monkeypatch.setenv("HF_TOKEN", "hf_" + "x" * 34)
    status, told = push()
    assert status == 2 and told.startswith("The Hub does not accept this token; log in again")
    assert "xxxx" not in told and not hub.repositories


def test_a_token_that_may_only_read_is_told(hub, push, monkeypatch):
    monkeypatch.setenv("HF_TOKEN", hub.read_token)
    status, told = push()
    assert status == 2 and told.startswith(
        "The token may not write to org/twin; use one with write access"
    )
    assert not hub.repositories


@pytest.mark.usefixtures("login")
@pytest.mark.parametrize("repo", ["org/has space", "a/b/c", "org/-leading", "org/two..dots"])
def test_a_name_that_is_not_allowed_is_told_before_anything_is_asked(repo, hub, push):
    status, told = push(repo)
    assert (
        status == 2 and told.startswith(f"{repo!r} cannot name a repository") and not hub.requests
    )


@pytest.mark.usefixtures("login")
def test_a_name_that_only_the_hub_refuses_is_told_in_its_words(hub, push):
    hub.fail("POST", "/api/repos/create", status=400, message="Name is reserved")
    status, told = push()
    assert status == 2 and "The Hub refused org/twin (status 400: Name is reserved" in told


@pytest.mark.usefixtures("login")
def test_a_model_of_another_kind_is_replaced_only_if_forced(hub, push, tower_folders, tmp_path):
    plain = tmp_path / "plain"
    make_model(tower_folders[0]).save_pretrained(str(plain))
    assert push(place=plain)[0] == 0
    before = hub.repositories["org/twin"].files()
    status, told = push()
    assert status == 2
    assert told.strip().endswith(
        "org/twin holds a bert encoder, and this model is a twin_encoder encoder; choose another "
        "repository, or "
        "force the push."
    )
    assert hub.repositories["org/twin"].files() == before
    assert push("org/twin", "--force")[0] == 0
    assert (
        json.loads(hub.repositories["org/twin"].files()["config.json"])["model_type"]
        == "twin_encoder"
    )


@pytest.mark.usefixtures("login")
def test_weights_that_would_be_loaded_instead_are_deleted_and_other_files_stay(hub, push, folder):
    (folder / "LICENSE").write_text("mine")
    shutil.copy(folder / "model.safetensors", folder / "model-00001-of-00001.safetensors")
    assert push()[0] == 0
    (folder / "LICENSE").unlink()
    (folder / "model-00001-of-00001.safetensors").unlink()
    assert push()[0] == 0
    files = hub.repositories["org/twin"].files()
    assert "model-00001-of-00001.safetensors" not in files and files["LICENSE"] == b"mine"


@pytest.mark.usefixtures("login")
def test_a_lost_answer_to_a_commit_that_deletes_is_no_fault(hub, push, folder):
    shutil.copy(folder / "model.safetensors", folder / "model-00001-of-00001.safetensors")
    assert push()[0] == 0
    (folder / "model-00001-of-00001.safetensors").unlink()
    hub.lose_answer("POST", COMMIT)
    assert push()[0] == 0
    assert "model-00001-of-00001.safetensors" not in hub.repositories["org/twin"].files()
    assert len(hub.repositories["org/twin"].commits) == 3


@pytest.mark.usefixtures("login")
def test_an_adapter_on_a_model_of_this_machine_is_refused(hub, push, folder):
    (folder / "adapter_config.json").write_text(
        json.dumps({"base_model_name_or_path": str(folder)})
    )
    status, told = push()
    assert (
        status == 2
        and "holds an adapter for a model that only this machine has" in told
        and not hub.requests
    )
    (folder / "adapter_config.json").write_text(json.dumps({"base_model_name_or_path": "org/base"}))
    assert push()[0] == 0
    (folder / "adapter_config.json").unlink()
    assert push()[0] == 0
    assert "adapter_config.json" not in hub.repositories["org/twin"].files()


@pytest.mark.usefixtures("login")
def test_a_broken_configuration_is_named(push, folder):
    assert push()[0] == 0
    (folder / "config.json").write_text("{")
    status, told = push()
    assert status == 2 and f"{folder / 'config.json'} is not JSON" in told


@pytest.mark.usefixtures("login")
def test_a_second_push_of_the_same_adds_no_commit(hub, push):
    assert push()[0] == 0 and push()[0] == 0
    assert len(hub.repositories["org/twin"].commits) == 2


@pytest.mark.usefixtures("login")
def test_a_collection_is_made_once(hub, push):
    assert push("org/twin", "--collection", "Twins")[0] == 0
    assert push("org/other", "--collection", "Twins")[0] == 0
    (collection,) = hub.collections.values()
    assert [item["id"] for item in collection.items] == ["org/twin", "org/other"]


@pytest.mark.usefixtures("login")
def test_a_folder_without_a_whole_model_is_refused(hub, push, folder, tmp_path):
    (tmp_path / "empty").mkdir()
    assert "holds neither modules.json nor config.json" in push(place=tmp_path / "empty")[1]
    assert "is not a folder" in push(place=tmp_path / "nowhere")[1]
    (folder / "model.safetensors").unlink()
    status, told = push()
    assert status == 2 and "holds no weights" in told and not hub.requests


@pytest.mark.usefixtures("login")
def test_a_file_above_the_hubs_limit_is_refused_before_anything_is_sent(hub, push, folder):
    with (folder / "model-00002-of-00002.safetensors").open("wb") as file:
        file.truncate(LARGEST_FILE + 1)  # Sparse: it takes no space.
    status, told = push()
    assert (
        status == 2
        and "has 50 GB, and the Hub takes files up to 50 GB" in told
        and not hub.requests
    )


@pytest.mark.usefixtures("login")
def test_the_card_that_is_pushed_passes_the_hubs_check(hub, push):
    assert push()[0] == 0
    card = ModelCard(hub.repositories["org/twin"].files()["README.md"].decode())
    card.validate()
    assert HfApi(endpoint=hub.endpoint, token=hub.read_token).model_info(
        "org/twin"
    ).library_name == ("sentence-transformers")
