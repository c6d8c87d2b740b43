"""A schema with every kind of record, index, counter and log, that any version serves."""

import msgspec

from keyhouse import Counter, First, Index, Record, Schema, Space
from tests.service.schema_service.support.recipes import BOX

__all__ = ["SCHEMA"]


class Seat(msgspec.Struct, kw_only=True):
    seat: int
    guest: str


class Profile(msgspec.Struct, kw_only=True):
    name: str


class Song(msgspec.Struct, kw_only=True):
    id: str
    title: str


BY_GUEST = Index("guest:{guest}:{seat:02d}", name="guest")
SCHEMA = Schema(
    "kinds",
    *BOX.records,
    Record(
        Seat,
        "seat:{seat:02d}",
        BY_GUEST,
        First("first:{guest}", value="seat", among=BY_GUEST, name="first"),
    ),
    Record(Profile, "profile"),
    Record(Song, "song:{id}"),
    Counter("hits"),
    space=Space("a person"),
    doc="Every kind.",
)
