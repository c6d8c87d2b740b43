"""A clip board for a stream: viewers clip moments, everybody finds them again."""

import asyncio

from msgspec import Struct
from msgspec.structs import replace

from keyhouse import (
    Index,
    Meta,
    Migration,
    Record,
    Schema,
    Space,
    Store,
    Unique,
    fixed,
    migrate,
    open_engine,
)


class Clip(Struct, kw_only=True):
    id: str
    title: str
    second: int
    viewer: str
    tags: list[str] = []
    created_at: str = ""


IN_ORDER = Index("idx:clip:second:{second:06d}:{id}")
BY_TAG = Index("idx:clip:tag:{tag:norm}:{id}", each={"tag": "tags"})
BY_TITLE = Unique("idx:clip:title:{title:norm}", value="id")
CLIP = Record(Clip, "clip:{id}", IN_ORDER, BY_TAG, BY_TITLE, created="created_at")
ON_SCREEN = Record(str, "screen", name="on-screen", expiry=fixed(30))
BOARD = Schema("clips", CLIP, ON_SCREEN, space=Space("a channel"))


async def fill(store: Store) -> None:
    await store.put(
        CLIP,
        Clip(id="goal", title="What a goal!", second=754, viewer="Ada", tags=["Goal", "replay"]),
    )
    entry = await store.put(
        CLIP, Clip(id="kick-off", title="Kick-off", second=12, viewer="Bo", tags=["replay"])
    )
    print("stored", entry.key, "at revision", entry.revision)


async def look(store: Store) -> None:
    print("in order:", [entry.record.title async for entry in store.scan(CLIP, by=IN_ORDER)])
    print("goals:", [entry.key async for entry in store.scan(CLIP, by=BY_TAG, tag="GOAL")])
    found = await store.lookup(CLIP, BY_TITLE, title="kick-OFF")
    print("by title:", found and found.record)


async def follow(store: Store) -> None:
    page = await store.page(CLIP, by=BY_TAG, tag="goal")
    await store.put(CLIP, replace(page.entries[0].record, second=748))
    async for event in store.watch(CLIP, since=page.revision):
        return print("changed:", event.record)


BY_VIEWER = Index("idx:clip:viewer:{viewer:norm}:{id}")
NEXT_CLIP = Record(Clip, "clip:{id}", IN_ORDER, BY_TAG, BY_TITLE, BY_VIEWER, created="created_at")
LIST_VIEWERS = Migration(
    1, "List clips by viewer.", NEXT_CLIP, lambda tx, entry: tx.rewrite(NEXT_CLIP, entry)
)
NEXT_BOARD = Schema(
    "clips", NEXT_CLIP, ON_SCREEN, space=BOARD.space, meta=Meta(), migrations=(LIST_VIEWERS,)
)


async def grow(store: Store) -> None:
    print(
        "migrated:", [(done.migration.description, done.records) for done in await migrate(store)]
    )
    print(
        "by Ada:", [entry.key async for entry in store.scan(NEXT_CLIP, by=BY_VIEWER, viewer="ada")]
    )


async def main() -> None:
    engine = await open_engine("sqlite:clips.db")
    for step in (fill, look, follow):
        await step(Store(BOARD, engine, "channel-7"))
    await grow(Store(NEXT_BOARD, engine, "channel-7"))
    await engine.close()


if __name__ == "__main__":
    asyncio.run(main())
