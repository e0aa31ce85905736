"""Collections of models."""

import hashlib
import re
from dataclasses import dataclass, field
from typing import Any

from hub_stand_in.answers import Answer, Refusal
from hub_stand_in.routing import Exchange, Routes

routes = Routes()
LAST_UPDATED = "2026-01-01T00:00:00.000Z"


@dataclass
class Collection:
    slug: str
    title: str
    namespace: str
    description: str | None
    private: bool
    items: list[dict[str, Any]] = field(default_factory=list)

    def describe(self) -> dict[str, object]:
        return {
            "slug": self.slug,
            "title": self.title,
            "description": self.description,
            "owner": {"name": self.namespace},
            "items": self.items,
            "lastUpdated": LAST_UPDATED,
            "position": 0,
            "private": self.private,
            "theme": "green",
            "upvotes": 0,
        }


def _readable(exchange: Exchange, slug: str) -> Collection:
    collection = exchange.hub.collections.get(slug)
    if collection is None or (
        collection.private
        and (exchange.account is None or not exchange.account.sees(collection.namespace))
    ):
        raise Refusal(404, "Collection not found")
    return collection


@routes.add("POST", "/api/collections")
def create(exchange: Exchange) -> Answer:
    account, asked = exchange.signed_in(), exchange.json()
    namespace, title = asked["namespace"], asked["title"]
    if not account.writes(namespace):
        raise Refusal(
            403,
            f'You don\'t have the rights to create a collection under the namespace "{namespace}"',
        )
    words = re.sub(r"[^a-z0-9]+", "-", title.lower()).strip("-")
    slug = f"{namespace}/{words}-{hashlib.sha1(title.encode()).hexdigest()[:24]}"
    if slug in exchange.hub.collections:
        raise Refusal(409, "You already have a collection with this title", slug=slug)
    collection = Collection(
        slug, title, namespace, asked.get("description"), bool(asked.get("private"))
    )
    exchange.hub.collections[slug] = collection
    return Answer.of_json(collection.describe())


@routes.add("GET", "/api/collections/{slug}")
def read(exchange: Exchange, slug: str) -> Answer:
    return Answer.of_json(_readable(exchange, slug).describe())


@routes.add("POST", "/api/collections/{slug}/items")
def add_item(exchange: Exchange, slug: str) -> Answer:
    account, collection = exchange.signed_in(), _readable(exchange, slug)
    if not account.writes(collection.namespace):
        raise Refusal(403, "You don't have the rights to edit this collection")
    asked = exchange.json()
    item = asked["item"]
    exchange.readable(item["id"])
    if any(known["id"] == item["id"] for known in collection.items):
        raise Refusal(409, "This item is already in the collection")
    number = len(collection.items)
    added = {"_id": f"item-{number}", "id": item["id"], "type": item["type"], "position": number}
    if "note" in asked:
        added["note"] = {"text": asked["note"]}
    collection.items.append(added)
    return Answer.of_json(collection.describe())
