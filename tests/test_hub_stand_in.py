"""The stand-in for the Hub against the real client: what is pushed comes back, and the Hub's rules
hold.
"""

import json
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from huggingface_hub import (
    CommitOperationAdd,
    CommitOperationDelete,
    HfApi,
    hf_hub_download,
    metadata_load,
    snapshot_download,
)
from huggingface_hub.errors import (
    BadRequestError,
    HfHubHTTPError,
    RemoteEntryNotFoundError,
    RepositoryNotFoundError,
    RevisionNotFoundError,
)

CARD = """---
library_name: sentence-transformers
pipeline_tag: sentence-similarity
license: apache-2.0
tags: [sentence-similarity, jtcse]
base_model: org/backbone
---
# A model
"""


@pytest.fixture
def api(hub):
    return HfApi(endpoint=hub.endpoint, token=hub.write_token)


@pytest.fixture
def folder(tmp_path):
    """A folder as a push has it: a card, small text, a folder within, three megabytes of weights."""
    folder = tmp_path / "model"
    (folder / "1_Pooling").mkdir(parents=True)
    (folder / "README.md").write_text(CARD)
    (folder / "config.json").write_text('{"model_type": "bert"}')
    (folder / "1_Pooling" / "config.json").write_text("{}")
    (folder / "model.safetensors").write_bytes(np.random.default_rng(0).bytes(3_000_000))
    return folder


def contents(folder):
    paths = [path for path in Path(folder).rglob("*") if path.is_file()]
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in paths}


def status_of(error):
    return error.value.response.status_code


def test_a_pushed_folder_comes_back_byte_by_byte_from_one_commit(hub, api, folder, tmp_path):
    api.create_repo("org/model")
    api.upload_folder(repo_id="org/model", folder_path=folder, commit_message="Add the model")
    repository = hub.repositories["org/model"]
    assert [commit.message for commit in repository.commits] == ["initial commit", "Add the model"]
    assert sorted(repository.head.added) == sorted(contents(folder))
    back = Path(snapshot_download("org/model", endpoint=hub.endpoint, cache_dir=tmp_path / "cache"))
    assert {".gitattributes": repository.files()[".gitattributes"], **contents(folder)} == contents(
        back
    )


def test_weights_go_by_lfs_to_another_host_that_sees_no_token(hub, api, folder):
    api.create_repo("org/model", private=True)
    api.upload_folder(repo_id="org/model", folder_path=folder)
    hf_hub_download("org/model", "model.safetensors", endpoint=hub.endpoint, token=hub.write_token)
    large = [
        request for request in hub.requests if request.path.startswith(("/upload/", "/download/"))
    ]
    assert [(request.method, request.token_sent) for request in large] == [
        ("PUT", False),
        ("GET", False),
    ]
    assert all(request.token_sent for request in hub.requests if request not in large)
    blobs = hub.repositories["org/model"].head.files
    assert [path for path, blob in blobs.items() if blob.lfs] == ["model.safetensors"]
    assert hub.write_token not in repr(hub.requests)


def test_model_info_describes_the_files_and_the_card(hub, api, folder):
    api.create_repo("org/model")
    oid = api.upload_folder(repo_id="org/model", folder_path=folder).oid
    info = api.model_info("org/model", files_metadata=True)
    assert (info.sha, info.library_name, info.pipeline_tag) == (
        oid,
        "sentence-transformers",
        "sentence-similarity",
    )
    assert {"sentence-transformers", "jtcse", "safetensors", "license:apache-2.0"} <= set(info.tags)
    weights = next(sibling for sibling in info.siblings if sibling.rfilename == "model.safetensors")
    assert weights.size == weights.lfs.size == 3_000_000
    assert api.model_info("org/model", revision=oid).sha == oid
    with pytest.raises(RevisionNotFoundError):
        api.model_info("org/model", revision="v9")


def test_trees_and_paths_are_listed_as_the_client_reads_them(api, folder):
    api.create_repo("org/model")
    api.upload_folder(repo_id="org/model", folder_path=folder)
    assert [entry.path for entry in api.list_repo_tree("org/model")] == [
        ".gitattributes",
        "1_Pooling",
        "README.md",
        "config.json",
        "model.safetensors",
    ]
    assert "1_Pooling/config.json" in api.list_repo_files("org/model")
    found = api.get_paths_info("org/model", ["1_Pooling", "model.safetensors", "absent"])
    assert [entry.path for entry in found] == ["1_Pooling", "model.safetensors"]
    with pytest.raises(RemoteEntryNotFoundError):
        list(api.list_repo_tree("org/model", "absent"))
    assert api.file_exists("org/model", "README.md")
    assert not api.file_exists("org/model", "absent")


def test_a_commit_adds_and_deletes_together_or_not_at_all(hub, api):
    api.create_repo("org/model")
    first = api.create_commit(
        "org/model", [CommitOperationAdd("old/a.txt", b"a")], commit_message="one"
    ).oid
    changes = [CommitOperationAdd("new.txt", b"b"), CommitOperationDelete("old/")]
    api.create_commit("org/model", changes, commit_message="two", parent_commit=first)
    assert set(hub.repositories["org/model"].files()) == {".gitattributes", "new.txt"}
    assert [commit.title for commit in api.list_repo_commits("org/model")] == [
        "two",
        "one",
        "initial commit",
    ]

    late = [CommitOperationAdd("late.txt", b"c")]
    with pytest.raises(HfHubHTTPError, match="A commit has happened since") as error:
        api.create_commit("org/model", late, commit_message="late", parent_commit=first)
    assert status_of(error) == 412
    broken = [CommitOperationAdd("other.txt", b"d"), CommitOperationDelete("absent.txt")]
    with pytest.raises(RemoteEntryNotFoundError):
        api.create_commit("org/model", broken, commit_message="broken")
    assert set(hub.repositories["org/model"].files()) == {".gitattributes", "new.txt"}
    assert len(hub.repositories["org/model"].commits) == 3


def test_commits_at_the_same_time_come_one_after_the_other(hub, api):
    api.create_repo("org/model")

    def push(number):
        api.upload_file(
            path_or_fileobj=b"%d" % number, path_in_repo=f"{number}.txt", repo_id="org/model"
        )

    with ThreadPoolExecutor(8) as threads:
        list(threads.map(push, range(8)))
    repository = hub.repositories["org/model"]
    assert [len(commit.files) for commit in repository.commits] == list(range(1, 10))
    assert len({commit.oid for commit in repository.commits}) == 9


def test_a_repository_is_made_once_and_under_an_allowed_name(hub, api):
    url = api.create_repo("org/model", private=True)
    assert (url.repo_id, hub.repositories["org/model"].private) == ("org/model", True)
    with pytest.raises(HfHubHTTPError, match="You already created this model repo") as error:
        api.create_repo("org/model")
    assert status_of(error) == 409
    assert api.create_repo("org/model", exist_ok=True).repo_id == "org/model"
    # The client's own check of names lets this one pass.
    with pytest.raises(BadRequestError, match=r'cannot end with "\.git" or "\.ipynb"'):
        api.create_repo("org/model.ipynb")
    with pytest.raises(
        HfHubHTTPError, match='rights to create a model under the namespace "elsewhere"'
    ) as error:
        api.create_repo("elsewhere/model")
    assert status_of(error) == 403
    api.delete_repo("org/model")
    assert hub.repositories == {}


def test_a_read_only_token_reads_and_writes_nothing(hub, api, folder):
    api.create_repo("org/model", private=True)
    reader = HfApi(endpoint=hub.endpoint, token=hub.read_token)
    assert reader.whoami()["auth"]["accessToken"]["role"] == "read"
    assert reader.model_info("org/model").private
    # The client asks whether the repository is there and is content: it is the upload that fails.
    assert reader.create_repo("org/model", exist_ok=True).repo_id == "org/model"
    for refused in (
        lambda: reader.create_repo("org/other"),
        lambda: reader.upload_folder(repo_id="org/model", folder_path=folder),
        lambda: reader.update_repo_settings("org/model", private=False),
        lambda: reader.delete_repo("org/model"),
        lambda: reader.auth_check("org/model", write=True),
        lambda: reader.create_collection("Models", namespace="org"),
    ):
        with pytest.raises(HfHubHTTPError, match="403 Forbidden") as error:
            refused()
        assert status_of(error) == 403
    assert list(hub.repositories) == ["org/model"]
    assert len(hub.repositories["org/model"].commits) == 1
    assert hub.repositories["org/model"].private


def test_a_wrong_token_is_told_from_a_missing_repository(hub, api):
    api.create_repo("org/model")
    wrong = HfApi(endpoint=hub.endpoint, token="wrong")
    with pytest.raises(HfHubHTTPError, match="Invalid user token"):
        wrong.whoami()
    with pytest.raises(
        HfHubHTTPError, match="Invalid credentials in Authorization header"
    ) as error:
        wrong.model_info("org/model")
    assert (type(error.value), status_of(error)) == (HfHubHTTPError, 401)


def test_a_private_repository_looks_missing_to_others(hub, api, folder, tmp_path):
    api.create_repo("org/model", private=True)
    api.upload_folder(repo_id="org/model", folder_path=folder)
    for token, status in ((False, 401), (hub.stranger_token, 404)):
        for missing in ("org/model", "org/absent"):
            with pytest.raises(RepositoryNotFoundError) as error:
                api.model_info(missing, token=token)
            assert status_of(error) == status
        with pytest.raises(RepositoryNotFoundError):
            snapshot_download(
                "org/model", endpoint=hub.endpoint, token=token, cache_dir=tmp_path / "others"
            )
    assert snapshot_download("org/model", endpoint=hub.endpoint, token=hub.read_token)
    api.update_repo_settings("org/model", private=False)
    assert api.model_info("org/model", token=False).private is False
    with pytest.raises(HfHubHTTPError) as error:
        api.upload_file(
            path_or_fileobj=b"", path_in_repo="a", repo_id="org/model", token=hub.stranger_token
        )
    assert status_of(error) == 403


def test_collections_are_made_once_and_take_each_model_once(hub, api):
    api.create_repo("org/model")
    made = api.create_collection("Models of the paper", namespace="org", exists_ok=True)
    assert (
        api.create_collection("Models of the paper", namespace="org", exists_ok=True).slug
        == made.slug
    )
    for _ in range(2):
        collection = api.add_collection_item(
            made.slug, "org/model", "model", note="BERT", exists_ok=True
        )
    assert [(item.item_id, item.item_type, item.note) for item in collection.items] == [
        ("org/model", "model", "BERT")
    ]
    with pytest.raises(HfHubHTTPError) as error:
        api.add_collection_item(made.slug, "org/model", "model")
    assert status_of(error) == 409
    with pytest.raises(RepositoryNotFoundError):
        api.add_collection_item(made.slug, "org/absent", "model")


@pytest.mark.parametrize(
    ("metadata", "fault"),
    [
        (
            "base_model: /home/someone/backbone",
            '"base_model" with value "/home/someone/backbone" is not valid',
        ),
        ("tags: jtcse", '"tags" must be an array of strings'),
        ("license: [", "YAML Metadata Error"),
        (
            'model-index: [{"name": "m", "results": [{"task": {"type": "STS"}, "dataset": {"type": '
            '"sts12"}}]}]',
            r'"model-index\[0\]\.results\[0\]\.dataset\.name" is required',
        ),
    ],
)
def test_a_card_with_wrong_metadata_is_refused_before_anything_is_sent(
    hub, api, folder, metadata, fault
):
    api.create_repo("org/model")
    (folder / "README.md").write_text(f"---\n{metadata}\n---\n# A model\n")
    with pytest.raises(ValueError, match=f"Invalid metadata in README.md.\n- {fault}"):
        api.upload_folder(repo_id="org/model", folder_path=folder)
    assert hub.count("*", "*preupload*") == 0


LOAD = """
import json, sys
import mteb
import numpy as np
from sentence_transformers import SentenceTransformer
from transformers import AutoModel, AutoTokenizer

sentences, out = json.loads(sys.argv[1]), sys.argv[2]
np.save(f"{out}/st.npy", SentenceTransformer("org/jtcse-bert", device="cpu").encode(sentences))
tokenizer = AutoTokenizer.from_pretrained("org/jtcse-bert")
encoder = AutoModel.from_pretrained("org/jtcse-bert").eval()
hidden = encoder(**tokenizer(sentences, padding=True, return_tensors="pt")).last_hidden_state
np.save(f"{out}/auto.npy", hidden[:, 0].detach().numpy())
print(mteb.get_model("org/jtcse-bert").mteb_model_meta.revision)
"""


def test_a_fresh_process_loads_the_pushed_model_by_its_name(hub, api, model, tmp_path):
    sentences = ["the dog runs", "a cat sleeps on the table", "two red birds"]
    model.save_pretrained(str(tmp_path / "saved"))
    api.create_repo("org/jtcse-bert", private=True)
    oid = api.upload_folder(repo_id="org/jtcse-bert", folder_path=tmp_path / "saved").oid
    assert (
        metadata_load(tmp_path / "saved" / "README.md")["library_name"] == "sentence-transformers"
    )
    command = [sys.executable, "-c", LOAD, json.dumps(sentences), str(tmp_path)]
    environment = hub.environment(tmp_path / "home", hub.read_token)
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    expected = model.encode(sentences)
    assert np.abs(np.load(tmp_path / "st.npy") - expected).max() < 1e-6
    assert np.abs(np.load(tmp_path / "auto.npy") - expected).max() < 1e-6
    assert done.stdout.split()[-1] == oid


def test_the_environment_of_a_process_holds_no_setting_of_whoever_runs_the_tests(
    hub, tmp_path, monkeypatch
):
    monkeypatch.setenv("HF_TOKEN", "somebody's")
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setenv("https_proxy", "http://elsewhere")
    environment = hub.environment(tmp_path)
    assert not {"HF_TOKEN", "HF_HUB_OFFLINE", "https_proxy"} & set(environment)
    assert environment["HF_ENDPOINT"] == hub.endpoint
    assert hub.environment(tmp_path, hub.read_token)["HF_TOKEN"] == hub.read_token
