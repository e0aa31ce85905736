"""What the Hub answers about models: creating, reading, settings."""

from hub_stand_in.answers import Answer, Refusal
from hub_stand_in.card_rules import card_faults
from hub_stand_in.repositories import Repository, check_name, tree
from hub_stand_in.routing import Exchange, Routes
from hub_stand_in.storage_routes import content

routes = Routes()


@routes.add("GET", "/api/whoami-v2")
def whoami(exchange: Exchange) -> Answer:
    return Answer.of_json(exchange.signed_in().describe())


@routes.add("POST", "/api/validate-yaml")
def validate_yaml(exchange: Exchange) -> Answer:
    errors, warnings = card_faults(exchange.json()["content"])
    found = {
        "errors": [{"message": error} for error in errors],
        "warnings": [{"message": text} for text in warnings],
    }
    return Answer.of_json(found, 400 if errors else 200)


def _named(exchange: Exchange) -> tuple[str, str]:
    """Namespace and name of a request to create or delete."""
    asked = exchange.json()
    if asked.get("type", "model") != "model":
        raise Refusal(400, "The stand-in keeps models only")
    return asked.get("organization") or exchange.signed_in().name, asked["name"]


@routes.add("POST", "/api/repos/create")
def create(exchange: Exchange) -> Answer:
    account, hub, asked = exchange.signed_in(), exchange.hub, exchange.json()
    namespace, name = _named(exchange)
    check_name(name)
    if not account.writes(namespace):
        raise Refusal(
            403, f'You don\'t have the rights to create a model under the namespace "{namespace}"'
        )
    repo_id = f"{namespace}/{name}"
    url = f"{hub.endpoint}/{repo_id}"
    if repo_id in hub.repositories:
        raise Refusal(409, f"You already created this model repo: {repo_id}", url=url)
    private = asked.get("visibility") == "private" or asked.get("private") is True
    hub.repositories[repo_id] = Repository(repo_id, private)
    return Answer.of_json({"url": url, "name": repo_id, "id": repo_id})


@routes.add("DELETE", "/api/repos/delete")
def delete(exchange: Exchange) -> Answer:
    repository = exchange.writable("/".join(_named(exchange)))
    del exchange.hub.repositories[repository.id]
    return Answer.of_json({})


@routes.add("PUT", "/api/models/{repo}/settings")
def settings(exchange: Exchange, repo: str) -> Answer:
    repository = exchange.writable(repo)
    if "visibility" in exchange.json():
        repository.private = exchange.json()["visibility"] == "private"
    return Answer.of_json({"private": repository.private, "gated": False})


@routes.add("GET", "/api/models/{repo}/auth-check")
def may_read(exchange: Exchange, repo: str) -> Answer:
    exchange.readable(repo)
    return Answer.of_json({})


@routes.add("GET", "/api/models/{repo}/auth-check/write")
def may_write(exchange: Exchange, repo: str) -> Answer:
    exchange.writable(repo, "Forbidden")
    return Answer.of_json({})


@routes.add("GET", "/api/models/{repo}/revision/{revision}")
def revision_info(exchange: Exchange, repo: str, revision: str) -> Answer:
    repository = exchange.readable(repo)
    return Answer.of_json(repository.describe(repository.at(revision), exchange.flag("blobs")))


@routes.add("GET", "/api/models/{repo}/tree/{revision}")
def tree_root(exchange: Exchange, repo: str, revision: str) -> Answer:
    return tree_folder(exchange, repo, revision, "")


@routes.add("GET", "/api/models/{repo}/tree/{revision}/{path}")
def tree_folder(exchange: Exchange, repo: str, revision: str, path: str) -> Answer:
    files = exchange.readable(repo).at(revision).files
    return Answer.of_json(tree(files, path, exchange.flag("recursive")))


@routes.add("POST", "/api/models/{repo}/paths-info/{revision}")
def paths_info(exchange: Exchange, repo: str, revision: str) -> Answer:
    files = exchange.readable(repo).at(revision).files
    asked = [path.rstrip("/") for path in exchange.form().get("paths", [])]
    known = {str(entry["path"]): entry for entry in tree(files, "", recursive=True)}
    return Answer.of_json([known[path] for path in asked if path in known])


@routes.add("GET", "/api/models/{repo}/refs")
def refs(exchange: Exchange, repo: str) -> Answer:
    head = exchange.readable(repo).head.oid
    branch = {"name": "main", "ref": "refs/heads/main", "targetCommit": head}
    return Answer.of_json({"branches": [branch], "tags": [], "converts": []})


@routes.add("GET", "/api/models/{repo}/commits/{revision}")
def commits(exchange: Exchange, repo: str, revision: str) -> Answer:
    repository = exchange.readable(repo)
    until = repository.commits.index(repository.at(revision)) + 1
    return Answer.of_json(
        [
            {
                "id": commit.oid,
                "title": commit.message,
                "message": commit.description,
                "authors": [{"user": commit.author}],
                "date": commit.date,
            }
            for commit in reversed(repository.commits[:until])
        ]
    )


# The shortest address comes last: a repository's id may have one part or two.
@routes.add("GET", "/api/models/{repo}")
def info(exchange: Exchange, repo: str) -> Answer:
    return revision_info(exchange, repo, "main")


@routes.add("GET", "/{repo}/resolve/{revision}/{path}")
def resolve(exchange: Exchange, repo: str, revision: str, path: str) -> Answer:
    repository = exchange.readable(repo)
    commit = repository.at(revision)
    headers = {"X-Repo-Commit": commit.oid}
    blob = commit.files.get(path)
    if blob is None:
        raise Refusal(404, "Entry not found", "EntryNotFound", headers)
    if blob.lfs:
        headers["X-Linked-Etag"] = f'"{blob.etag}"'
        headers["X-Linked-Size"] = str(len(blob.data))
        headers["Location"] = (
            f"{exchange.hub.storage_endpoint}/download/{repo}/{blob.sha256}/{path}"
        )
        return Answer(302, headers=headers)
    return content(exchange, blob.data, {**headers, "ETag": f'"{blob.etag}"'})
