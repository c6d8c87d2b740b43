"""A schema that is served by several processes."""

from msgspec import Struct

from keyhouse import Record, Schema, Space


class Note(Struct):
    id: str
    number: int


NOTE = Record(Note, "note:{id}")
NOTES = Schema("notes", NOTE, space=Space("a user"))
