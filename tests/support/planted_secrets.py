"""A schema whose private and sealed members are in every kind of derived row, and values of them
that no answer, log line or page may contain."""

import msgspec

from keyhouse import First, Index, Record, RecordCount, Schema, Space, Store, Summary, Unique
from keyhouse.keyring import KeyRing
from keyhouse.schema.compiled_rows import FromAttribute

RING = KeyRing.new()
SECRET = "zsecret"
"""The start of every planted value, however it is cut or folded."""


class Home(msgspec.Struct):
    street: str = ""


class Person(msgspec.Struct):
    id: str
    name: str
    team: str = "red"
    pin: str = ""
    nicknames: list[str] = []
    home: Home = msgspec.field(default_factory=Home)
    note: str = ""
    badge: str = ""


BY_PIN = Index("idx:person:pin:{pin}:{id}", name="pin")
BY_TEAM = Index("idx:person:team:{team}:{id}", name="team")
CANDIDATES = Index("idx:person:among:{pin}:{id}", name="among")
PERSON = Record(
    Person,
    "person:{id}",
    BY_PIN,
    BY_TEAM,
    CANDIDATES,
    Index("idx:person:team_pin:{team}:{pin}:{id}", name="team_pin"),
    Index("idx:person:nickname:{nickname}:{id}", each={"nickname": "nicknames"}, name="nickname"),
    Index("idx:person:street:{street}:{id}", fields={"street": "home.street"}, name="street"),
    Index(
        "idx:person:upper:{upper}:{id}",
        fields={"upper": FromAttribute("pin", lambda pin: f"x{pin}")},
        name="upper",
    ),
    Index(
        "idx:person:made:{made}:{id}", fields={"made": lambda p: f"{p.pin}-{p.note}"}, name="made"
    ),
    Unique("idx:person:upin:{pin}", value="id", name="upin"),
    First("idx:person:first:{pin}", value="id", among=CANDIDATES, name="first"),
    RecordCount("num:person:pin:{pin}", name="pins"),
    Summary("list:person:pin:{pin}", member="id", under="ids", name="by_pin"),
    Summary(
        "list:person:team:{team}",
        member="id",
        under="people",
        entry=lambda person: {"pin": person.pin, "badge": person.badge},
        name="by_team",
    ),
    Unique("idx:person:note:{note:hmac}", value="id", name="note"),
    name="person",
    private=("pin", "nicknames", "home"),
    sealed=("note", "badge"),
)


PLANTED = Schema("planted", PERSON, space=Space("a club"), doc="Secrets in derived rows.")


def person(number: int) -> Person:
    return Person(
        id=f"p{number}",
        name=f"Name {number}",
        pin=f"{SECRET}-pin-{number}",
        nicknames=[f"{SECRET}-nick-{number}"],
        home=Home(f"{SECRET}-street-{number}"),
        note=f"{SECRET}-note-{number}",
        badge=f"{SECRET}-badge-{number}",
    )


async def plant(store: Store, people: int = 3) -> None:
    for number in range(people):
        await store.put(PERSON, person(number))


def leaked(text: str) -> str:
    """Return where a planted value is found in a text, in any case; "" if it is not."""
    at = text.casefold().find(SECRET)
    return "" if at < 0 else text[max(0, at - 60) : at + 60]
