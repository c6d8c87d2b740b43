"""A schema whose private and sealed members are in every kind of derived row, with planted values,
and a search for those values in whatever leaves a service.

`found_in` decodes what may hide a value: percent-encoding, and base64 as cursors have it.
"""

import base64
import binascii
import re
from typing import Annotated, Any, Final, Literal
from urllib.parse import unquote_to_bytes

from msgspec import Meta, Struct

from keyhouse import (
    Counter,
    First,
    Index,
    Owner,
    Record,
    RecordCount,
    Schema,
    Space,
    Summary,
    Unique,
)

PRIVATE: Final = "pl4nt3d"
"""Part of every planted text that no response may have."""

SEALED: Final = "s34l3d"
"""Part of the planted text that only the value of an item has."""

NUMBER: Final = 918_273_645
_MARKS: Final = (PRIVATE.encode(), str(NUMBER).encode())
_ENCODED: Final = re.compile(rb"[A-Za-z0-9_+/-]{8,}")


class Person(Struct, kw_only=True):
    id: str
    name: str = ""
    team: str = ""
    pin: str = ""
    phone: int = 0
    aliases: list[str] = []
    email: str = ""
    note: str = ""
    level: Literal["", "low", "high"] = ""
    born: str = ""
    seen: str | None = None
    limit: Annotated[str, Meta(pattern="^[a-z0-9-]{0,60}$")] = ""


class Badge(Struct, kw_only=True):
    person: str
    number: str
    code: str = ""


BY_PIN = Index("idx:person:pin:{pin}:{id}", name="pin")
PERSON = Record(
    Person,
    "person:{id}",
    BY_PIN,
    Index("idx:person:team:{team}:{id}", name="team"),
    Index("idx:person:phone:{phone:09d}:{id}", name="phone"),
    Index("idx:person:alias:{alias}:{id}", each={"alias": "aliases"}, name="alias"),
    Index("idx:person:part:{part}:{id}", fields={"part": lambda each: each.pin[:9]}, name="part"),
    Index("idx:person:pin-first:{team}:{pin}:{id}", name="team-pin"),
    Unique("idx:person:upin:{pin}", value="id", name="upin"),
    Unique("idx:person:ualias:{alias}", value="id", each={"alias": "aliases"}, name="ualias"),
    First("idx:person:fpin:{pin}", value="id", among=BY_PIN, name="fpin"),
    RecordCount("num:person:pin:{pin}", name="pin-count"),
    Summary("sum:person:pin:{pin}", member="id", under="ids", name="pin-list"),
    Summary(
        "sum:person:team:{team}",
        member="id",
        under="pins",
        entry=lambda each: each.pin,
        name="team-pins",
    ),
    Index("idx:person:email:{email:hmac}:{id}", name="email-hmac"),
    Unique("idx:person:hpin:{pin:hmac}", value="id", name="pin-hmac"),
    Index("idx:person:note:{note:hmac}:{id}", name="note-hmac"),
    Index("idx:person:born:{born:ulid}:{id}", name="born", when=lambda each: bool(each.born)),
    private=("pin", "phone", "aliases", "note", "level", "born", "seen"),
    sealed=("email", "note", "limit"),
    timestamps=("seen",),
)
BADGE = Record(
    Badge,
    "badge:{person}:{number}",
    Index("idx:badge:code:{code}:{person}:{number}", name="code"),
    private=("code",),
    belongs_to=Owner(PERSON),
)
VISITS = Counter("visits:{id}")
VAULT = Schema("vault", PERSON, BADGE, VISITS, space=Space("a person"), doc="Planted members.")

HMAC_ROWS: Final = frozenset({"email-hmac", "pin-hmac", "note-hmac"})
"""Rows by which a caller who knows a value may find its record: the declaration permits it."""


def person(id: str, **members: Any) -> dict[str, Any]:
    """Return a person with planted values, as JSON."""
    return {
        "id": id,
        "name": f"Name {id}",
        "team": "red",
        "pin": f"{PRIVATE}-pin-{id}",
        "phone": NUMBER,
        "aliases": [f"{PRIVATE}-alias-{id}", f"{PRIVATE}-other-{id}"],
        "email": f"{SEALED}-{id}@example.org",
        "note": f"{PRIVATE}-note-{id}",
        **members,
    }


def badge(number: str) -> dict[str, Any]:
    return {"person": "p1", "number": number, "code": f"{PRIVATE}-code-{number}"}


def found_in(data: bytes, *, marks: tuple[bytes, ...] = _MARKS) -> list[bytes]:
    """Return the planted values in data, also where they are encoded."""
    texts = [data, unquote_to_bytes(data)]
    for run in _ENCODED.findall(texts[1]):
        padded = run.replace(b"-", b"+").replace(b"_", b"/") + b"=" * (-len(run) % 4)
        try:
            texts.append(base64.b64decode(padded))
        except binascii.Error:
            continue
    return [text for text in texts if any(mark in text for mark in marks)]
