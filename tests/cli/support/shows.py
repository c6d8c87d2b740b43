"""A schema of one's own in `tv.py`, and its next version, in which an index is new."""

import asyncio
from pathlib import Path

from msgspec import Struct

from keyhouse import Index, Meta, Record, Schema, Space, open_store

MODULE = """
from msgspec import Struct

from keyhouse import Index, Meta, Record, Schema, Space


class Show(Struct, kw_only=True):
    id: str
    title: str
    year: int


BY_TITLE = Index("title:{title:norm}:{id}")
SHOW = Record(Show, "show:{id}", BY_TITLE)
GUIDE = Schema("guide", SHOW, meta=Meta(), space=Space("a household"))

NEW = Record(Show, "show:{id}", BY_TITLE, Index("year:{year:04d}:{id}"))
NEXT = Schema("guide", NEW, meta=Meta(), space=Space("a household"))
"""


class Show(Struct, kw_only=True):
    id: str
    title: str
    year: int


SHOW = Record(Show, "show:{id}", Index("title:{title:norm}:{id}"))
GUIDE = Schema("guide", SHOW, meta=Meta(), space=Space("a household"))
NEW = Record(Show, "show:{id}", SHOW.derived[0], Index("year:{year:04d}:{id}"))
NEXT = Schema("guide", NEW, meta=Meta(), space=Space("a household"))


def declare_shows(folder: Path) -> None:
    """Write `tv.py` and a store `tv.db` with two shows, before the index was declared."""
    (folder / "tv.py").write_text(MODULE)

    async def fill() -> None:
        async with open_store(GUIDE, f"sqlite:{folder}/tv.db", "ann") as store:
            shows = [Show(id="a", title="A", year=1990), Show(id="b", title="B", year=1991)]
            await store.put_many(SHOW, shows)

    asyncio.run(fill())
