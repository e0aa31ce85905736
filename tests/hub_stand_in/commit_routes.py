"""How files come in: the upload mode of each, large files by LFS, then one commit."""

import base64
import json

from hub_stand_in.answers import Answer, Refusal
from hub_stand_in.card_rules import card_faults
from hub_stand_in.repositories import Blob, Repository, is_large
from hub_stand_in.routing import Exchange, Routes

routes = Routes()


@routes.add("POST", "/api/models/{repo}/preupload/{revision}")
def preupload(exchange: Exchange, repo: str, revision: str) -> Answer:
    files = exchange.writable(repo).at(revision).files
    return Answer.of_json(
        {
            "files": [
                {
                    "path": asked["path"],
                    "uploadMode": "lfs"
                    if is_large(asked["path"], asked["size"], base64.b64decode(asked["sample"]))
                    else "regular",
                    "shouldIgnore": False,
                    "oid": files[asked["path"]].etag if asked["path"] in files else None,
                }
                for asked in exchange.json()["files"]
            ]
        }
    )


@routes.add("POST", "/{repo}.git/info/lfs/objects/batch")
def lfs_batch(exchange: Exchange, repo: str) -> Answer:
    repository, hub = exchange.writable(repo, "Authorization error."), exchange.hub
    objects = []
    for asked in exchange.json()["objects"]:
        described = {"oid": asked["oid"], "size": asked["size"], "authenticated": True}
        if asked["oid"] not in repository.large_objects:
            described["actions"] = {
                "upload": {"href": f"{hub.storage_endpoint}/upload/{repo}/{asked['oid']}"},
                "verify": {"href": f"{hub.endpoint}/{repo}.git/info/lfs/objects/verify"},
            }
        objects.append(described)
    return Answer.of_json({"transfer": "basic", "objects": objects})


@routes.add("POST", "/{repo}.git/info/lfs/objects/verify")
def lfs_verify(exchange: Exchange, repo: str) -> Answer:
    repository, asked = exchange.writable(repo, "Authorization error."), exchange.json()
    if len(repository.large_objects.get(asked["oid"], b"")) != asked["size"]:
        raise Refusal(404, "LFS object not found")
    return Answer.of_json({})


@routes.add("POST", "/api/models/{repo}/commit/{revision}")
def commit(exchange: Exchange, repo: str, revision: str) -> Answer:
    repository, account = exchange.writable(repo), exchange.signed_in()
    if revision != "main":
        raise Refusal(404, f"Invalid rev id: {revision}", "RevisionNotFound")
    added: dict[str, Blob] = {}
    deleted: list[str] = []
    header: dict[str, str] = {}
    for line in exchange.body.splitlines():
        item = json.loads(line)
        value = item["value"]
        if item["key"] == "header":
            header = value
        elif item["key"] == "file":
            added[value["path"]] = Blob(base64.b64decode(value["content"]), lfs=False)
        elif item["key"] == "lfsFile":
            added[value["path"]] = _large_file(repository, value["path"], value["oid"])
        else:
            deleted += _deletions(repository, value["path"], item["key"] == "deletedFolder")
    _check(repository, header, added)
    made = repository.commit(
        header["summary"], header["description"], account.name, added, tuple(deleted)
    )
    url = f"{exchange.hub.endpoint}/{repo}/commit/{made.oid}"
    return Answer.of_json(
        {"success": True, "commitOid": made.oid, "commitUrl": url, "hookOutput": ""}
    )


def _large_file(repository: Repository, path: str, oid: str) -> Blob:
    if oid not in repository.large_objects:
        raise Refusal(
            400,
            "Your push was rejected because an LFS pointer pointed to a file that does not exist: "
            f"{path}",
        )
    return Blob(repository.large_objects[oid], lfs=True)


def _deletions(repository: Repository, path: str, folder: bool) -> list[str]:
    files = repository.head.files
    gone = (
        [known for known in files if known.startswith(f"{path.rstrip('/')}/")] if folder else [path]
    )
    if not gone or any(known not in files for known in gone):
        raise Refusal(
            404, f"A {'folder' if folder else 'file'} with this name doesn't exist", "EntryNotFound"
        )
    return gone


def _check(repository: Repository, header: dict[str, str], added: dict[str, Blob]) -> None:
    if header.get("parentCommit", repository.head.oid) != repository.head.oid:
        raise Refusal(412, "A commit has happened since. Please refresh and try again.")
    if "README.md" in added:
        errors, _ = card_faults(added["README.md"].data.decode())
        if errors:
            raise Refusal(400, "Invalid metadata in README.md: " + "; ".join(errors))
