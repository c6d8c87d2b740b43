"""A schema to serve and to attack: documents of any size."""

import msgspec

from keyhouse.schema import Record, Schema, Space

__all__ = ["DOCUMENTS"]


class Document(msgspec.Struct):
    id: str
    words: list[str] = []


DOCUMENT = Record(Document, "doc:{id}", name="doc")
DOCUMENTS = Schema("documents", DOCUMENT, space=Space("a person"), doc="Documents of a person.")
