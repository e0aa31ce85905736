"""The host that keeps large files: uploads and downloads by address alone, without a token."""

import hashlib
import re

from hub_stand_in.answers import Answer, Refusal
from hub_stand_in.routing import Exchange, Routes

routes = Routes()


@routes.add("PUT", "/upload/{repo}/{oid}")
def upload(exchange: Exchange, repo: str, oid: str) -> Answer:
    if hashlib.sha256(exchange.body).hexdigest() != oid:
        raise Refusal(400, "The content is not what its sha256 promised")
    exchange.hub.repositories[repo].large_objects[oid] = exchange.body
    return Answer()


@routes.add("GET", "/download/{repo}/{oid}/{path}")
def download(exchange: Exchange, repo: str, oid: str, path: str) -> Answer:
    return content(
        exchange, exchange.hub.repositories[repo].large_objects[oid], {"ETag": f'"{oid}"'}
    )


def content(exchange: Exchange, data: bytes, headers: dict[str, str]) -> Answer:
    """A file, or the part of it that a Range header asks for."""
    headers = {**headers, "Accept-Ranges": "bytes", "Content-Type": "application/octet-stream"}
    if exchange.range is None:
        return Answer(200, data, headers)
    asked = re.fullmatch(r"bytes=(\d*)-(\d*)", exchange.range)
    if asked is None or asked[1] == asked[2] == "":
        raise Refusal(400, f"Invalid range: {exchange.range}")
    if asked[1]:
        start, end = int(asked[1]), min(int(asked[2] or len(data) - 1), len(data) - 1)
    else:
        start, end = max(len(data) - int(asked[2]), 0), len(data) - 1
    if start > end:
        raise Refusal(
            416, "Range Not Satisfiable", headers={"Content-Range": f"bytes */{len(data)}"}
        )
    headers["Content-Range"] = f"bytes {start}-{end}/{len(data)}"
    return Answer(206, data[start : end + 1], headers)
