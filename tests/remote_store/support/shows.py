"""Shows of two versions of a schema: the records of the old one do not decode in the new one."""

from typing import Any

from msgspec import Struct

from keyhouse import Index, Meta, Record, Schema, Space, Store, Unique
from keyhouse.engine import Engine
from keyhouse.store import note_new_space


class OldShow(Struct, kw_only=True):
    id: str
    title: str
    genre: str


class Show(Struct, kw_only=True):
    id: str
    title: str
    genre: str
    year: int
    """Required, and without a default: old records do not have it."""


def declared(kind: Any) -> tuple[Record[Any], Index, Unique, Schema]:
    by_genre = Index("genre:{genre}:{id}", name="genre")
    one_title = Unique("title:{title}", value="id", name="title")
    show = Record(kind, "show:{id}", by_genre, one_title, name="show")
    return show, by_genre, one_title, Schema("tv", show, meta=Meta(), space=Space("a home"))


OLD, _, _, OLD_GUIDE = declared(OldShow)
SHOW, BY_GENRE, ONE_TITLE, GUIDE = declared(Show)


async def fill(engine: Engine, space: str) -> None:
    """Write records of both versions: those of the old one do not decode."""
    old = Store(OLD_GUIDE, engine, space)
    await note_new_space(old)
    for id in ("dark", "lost"):
        await old.put(OLD, OldShow(id=id, title=id.title(), genre="drama"))
    await Store(GUIDE, engine, space).put(
        SHOW, Show(id="heat", title="Heat", genre="drama", year=1995)
    )


OF_ANOTHER_TYPE = (
    "A stored row does not have its record's type: give a member that is new in the declaration a"
    " default, migrate the rows if its type has changed; see `keyhouse verify`."
)
