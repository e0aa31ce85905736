"""Model repositories in memory: files, commits, the names the Hub allows."""

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from fnmatch import fnmatchcase
from pathlib import PurePosixPath

from hub_stand_in.answers import Refusal
from hub_stand_in.card_rules import card_metadata

LARGE_FILES = (
    "*.7z *.arrow *.bin *.bz2 *.ckpt *.ftz *.gz *.h5 *.joblib *.mlmodel *.model *.msgpack *.npy "
    "*.npz *.onnx *.ot "
    "*.parquet *.pb *.pickle *.pkl *.pt *.pth *.rar *.safetensors *.tar *.tflite *.tgz *.wasm *.xz "
    "*.zip *.zst"
).split()
LARGE_SIZE = 10 * 2**20
NAME = re.compile(r"(?![-.])[A-Za-z0-9._-]{1,96}(?<![-.])", re.ASCII)


def check_name(name: str) -> None:
    if (
        not NAME.fullmatch(name)
        or "--" in name
        or ".." in name
        or name.endswith((".git", ".ipynb"))
    ):
        raise Refusal(
            400,
            "Only regular characters and '-', '_', '.' are accepted. '--' and '..' are forbidden. "
            "'-' and '.' cannot "
            'start or end the name. The name cannot end with ".git" or ".ipynb". Max length is 96.',
        )


def is_large(path: str, size: int, sample: bytes) -> bool:
    """Whether the Hub wants this file by LFS."""
    return (
        size > LARGE_SIZE
        or b"\0" in sample
        or any(fnmatchcase(PurePosixPath(path).name, p) for p in LARGE_FILES)
    )


@dataclass(frozen=True)
class Blob:
    """A file's content; of an LFS file, git keeps a pointer."""

    data: bytes
    lfs: bool

    @property
    def sha256(self) -> str:
        return hashlib.sha256(self.data).hexdigest()

    @property
    def in_git(self) -> bytes:
        if not self.lfs:
            return self.data
        pointer = (
            f"version https://git-lfs.github.com/spec/v1\noid sha256:{self.sha256}\nsize "
            f"{len(self.data)}\n"
        )
        return pointer.encode()

    @property
    def git_oid(self) -> str:
        return hashlib.sha1(b"blob %d\0" % len(self.in_git) + self.in_git).hexdigest()

    @property
    def etag(self) -> str:
        return self.sha256 if self.lfs else self.git_oid


@dataclass(frozen=True)
class Commit:
    """One commit: what it changed, and all files as they were after it."""

    oid: str
    message: str
    description: str
    author: str
    date: str
    added: tuple[str, ...]
    deleted: tuple[str, ...]
    files: Mapping[str, Blob]


@dataclass
class Repository:
    """A model repository with its one branch, main; the Hub itself makes the first commit."""

    id: str
    private: bool
    commits: list[Commit] = field(default_factory=list)
    # Uploaded large files, whether or not a commit names them.
    large_objects: dict[str, bytes] = field(default_factory=dict)

    def __post_init__(self) -> None:
        attributes = "".join(
            f"{pattern} filter=lfs diff=lfs merge=lfs -text\n" for pattern in LARGE_FILES
        )
        self.commit(
            "initial commit",
            "",
            "system",
            {".gitattributes": Blob(attributes.encode(), lfs=False)},
            (),
        )

    @property
    def namespace(self) -> str:
        return self.id.split("/")[0]

    @property
    def head(self) -> Commit:
        return self.commits[-1]

    def files(self) -> dict[str, bytes]:
        """All files as they are now."""
        return {path: blob.data for path, blob in self.head.files.items()}

    def at(self, revision: str) -> Commit:
        if revision == "main":
            return self.head
        for commit in self.commits:
            if commit.oid == revision:
                return commit
        raise Refusal(404, f"Invalid rev id: {revision}", "RevisionNotFound")

    def commit(
        self,
        message: str,
        description: str,
        author: str,
        added: Mapping[str, Blob],
        deleted: tuple[str, ...],
    ) -> Commit:
        kept = dict(self.head.files) if self.commits else {}
        for path in deleted:
            del kept[path]
        files = {**kept, **added}
        identity = [
            message,
            len(self.commits),
            sorted((path, blob.git_oid) for path, blob in files.items()),
        ]
        commit = Commit(
            oid=hashlib.sha1(json.dumps([self.id, *identity]).encode()).hexdigest(),
            message=message,
            description=description,
            author=author,
            date=datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.000Z"),
            added=tuple(added),
            deleted=deleted,
            files=files,
        )
        self.commits.append(commit)
        return commit

    def describe(self, commit: Commit, with_blobs: bool) -> dict[str, object]:
        """What model info answers."""
        card = (
            card_metadata(commit.files["README.md"].data.decode())
            if "README.md" in commit.files
            else {}
        )
        library = card.get("library_name") or guessed_library(commit.files)
        tags = list(card.get("tags") or [])
        if library is not None:
            tags.insert(0, library)
        if any(path.endswith(".safetensors") for path in commit.files):
            tags.append("safetensors")
        if "license" in card:
            tags.append(f"license:{card['license']}")
        return {
            "_id": hashlib.sha1(self.id.encode()).hexdigest()[:24],
            "id": self.id,
            "modelId": self.id,
            "author": self.namespace,
            "sha": commit.oid,
            "createdAt": self.commits[0].date,
            "lastModified": commit.date,
            "private": self.private,
            "gated": False,
            "disabled": False,
            "downloads": 0,
            "likes": 0,
            "library_name": library,
            "pipeline_tag": card.get("pipeline_tag"),
            "tags": list(dict.fromkeys(tags)),
            "cardData": card,
            "siblings": [
                {"rfilename": path, **(described_blob(blob) if with_blobs else {})}
                for path, blob in sorted(commit.files.items())
            ],
        }


def guessed_library(files: Mapping[str, Blob]) -> str | None:
    """What the Hub takes a model without a library_name for."""
    if "modules.json" in files:
        return "sentence-transformers"
    return "transformers" if "config.json" in files else None


def described_blob(blob: Blob) -> dict[str, object]:
    described: dict[str, object] = {"size": len(blob.data), "blobId": blob.git_oid}
    if blob.lfs:
        described["lfs"] = {
            "sha256": blob.sha256,
            "size": len(blob.data),
            "pointerSize": len(blob.in_git),
        }
    return described


def tree_entry(path: str, blob: Blob) -> dict[str, object]:
    entry: dict[str, object] = {
        "type": "file",
        "oid": blob.git_oid,
        "size": len(blob.data),
        "path": path,
    }
    if blob.lfs:
        entry["lfs"] = {"oid": blob.sha256, "size": len(blob.data), "pointerSize": len(blob.in_git)}
    return entry


def tree(files: Mapping[str, Blob], folder: str, recursive: bool) -> list[dict[str, object]]:
    """The entries of a folder of a commit; "" is the root."""
    prefix = f"{folder}/" if folder else ""
    entries: dict[str, dict[str, object]] = {}
    for path, blob in sorted(files.items()):
        if not path.startswith(prefix):
            continue
        parts = path.removeprefix(prefix).split("/")
        for depth in range(1, len(parts)):
            inner = prefix + "/".join(parts[:depth])
            if recursive or depth == 1:
                oid = hashlib.sha1(inner.encode()).hexdigest()
                entries[inner] = {"type": "directory", "oid": oid, "size": 0, "path": inner}
        if recursive or len(parts) == 1:
            entries[path] = tree_entry(path, blob)
    if folder and not entries:
        raise Refusal(404, f'{folder} does not exist on "main"', "EntryNotFound")
    return list(entries.values())
