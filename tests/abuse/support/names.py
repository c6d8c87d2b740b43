"""A schema to serve and to attack: texts in every kind of key field."""

import msgspec

from keyhouse.schema import Index, Record, RecordCount, Schema, Space, Unique

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
NAMES = Schema("names", PERSON, space=Space("a person"), doc="Names of a person.")
