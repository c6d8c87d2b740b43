"""A schema to serve and to attack: texts in every kind of key field."""

from typing import Any

import msgspec

from keyhouse import Store
from keyhouse.schema import (
    Counter,
    Index,
    Log,
    Record,
    RecordCount,
    Schema,
    Space,
    Unique,
    operation,
)

__all__ = ["NAMES"]


class Person(msgspec.Struct):
    id: str
    name: str
    title: str = "t"
    alias: str = "a"
    tags: list[str] = []


PERSON = Record(
    Person,
    "person:{id:norm}",
    Unique("name:{name:norm}", value="id", name="name"),
    Index("title:{title:norm900}:{id:norm}", name="title"),
    Index("alias:{alias}:{id:norm}", name="alias"),
    Index("tag:{tag:norm}:{id:norm}", each={"tag": "tags"}, name="tag"),
    RecordCount("tags:{tag:norm}", each={"tag": "tags"}, name="tag_count"),
    name="person",
)


class Renamed(msgspec.Struct):
    name: str
    count: int = 1


class NewName(msgspec.Struct, kw_only=True):
    id: str
    name: str = "n"
    tags: list[str] = []
    more: dict[str, Any] = {}


HITS = Counter("hits:{name:norm}", name="hits")
RENAMED = Log(Renamed, "renamed:{name:norm}:{at:ulid}", name="renamed")


@operation(access="write")
async def rename(store: Store, request: NewName) -> NewName:
    """Give a person another name."""
    await store.put(PERSON, Person(id=request.id, name=request.name, tags=request.tags))
    return request


NAMES = Schema(
    "names",
    *(PERSON, HITS, RENAMED),
    operations=[rename],
    space=Space("a person"),
    doc="Names of a person.",
)
