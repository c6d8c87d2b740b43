"""`python -m benchmarks.services.playback_server FOLDER`: the audiobook library, served on SQLite.

It has one book and 64 listeners. It prints its port, the book, its segment and the listeners'
tokens as JSON.
"""

from pathlib import Path
from typing import Any, Final

import httpx
from prometheus_client import CollectorRegistry

from benchmarks.services.app_process import run, serve
from benchmarks.services.http_server import UNLIMITED
from keyhouse import Store, open_engine
from keyhouse.http import make_app
from keyhouse.service.spec import ServiceContext
from keyhouse_audiobooks import SYSTEM
from keyhouse_audiobooks.records import (
    Argon2Params,
    Author,
    Book,
    DurationMap,
    Segment,
    SegmentSpan,
)
from keyhouse_audiobooks.schema import (
    ARGON2_PARAMS,
    AUTHOR,
    BOOK,
    DURATION_MAP,
    SCHEMAS,
    SEGMENT,
)

LISTENERS: Final = 64
SECONDS: Final = 36_000
PASSWORD: Final = "only for benchmarks"
_CHEAP = Argon2Params(time_cost=1, memory_cost_kib=8, parallelism=1, hash_bytes=32, salt_bytes=16)


async def seeded(store: Store) -> dict[str, Any]:
    """Write a book of one segment; return their ids."""
    await store.put(ARGON2_PARAMS, _CHEAP)
    author, book, segment = store.ids.new(), store.ids.new(), store.ids.new()
    await store.put(AUTHOR, Author(id=author, name="Ann Author"))
    await store.put(BOOK, Book(id=book, title="An Evening", author_id=author))
    file = Segment(
        id=segment,
        book_id=book,
        file_path="evening.mp3",
        format="mp3",
        size_bytes=1,
        duration_seconds=SECONDS,
        hash_sha256="0" * 64,
        track_number=1,
        total_tracks=1,
    )
    await store.put(SEGMENT, file)
    span = SegmentSpan(id=segment, duration=SECONDS, active=True, offset_start=0)
    durations = DurationMap(segments=[span], total_duration=SECONDS)
    await store.put(DURATION_MAP, durations, book_id=book)
    return {"book": book, "segment": segment}


async def tokens(app: Any) -> list[str]:
    """Create the listeners, and sign them in."""
    found = []
    async with httpx.AsyncClient(
        transport=httpx.ASGITransport(app=app), base_url="http://localhost/audiobooks/api/v1"
    ) as client:

        async def post(path: str, **body: object) -> Any:
            reply = await client.post(path, json=body)
            return reply.raise_for_status().json()["data"]

        await post("/auth/setup", username="admin", password=PASSWORD)
        admin = await post("/auth/login", username="admin", password=PASSWORD)
        client.headers["Authorization"] = f"Bearer {admin['token']}"
        for number in range(LISTENERS):
            await post("/users", username=f"listener{number}", password=PASSWORD)
        del client.headers["Authorization"]
        for number in range(LISTENERS):
            user = await post("/auth/login", username=f"listener{number}", password=PASSWORD)
            found.append(user["token"])
            client.cookies.clear()
    return found


async def main(folder: Path) -> None:
    engine = await open_engine(f"sqlite:{folder}/library.db")
    ids = await seeded(Store(SCHEMAS[0], engine, "main"))
    context = ServiceContext(
        engine=engine, data=folder, metrics=CollectorRegistry(), settings=UNLIMITED
    )
    app = make_app([await SYSTEM.service(context)], registry=CollectorRegistry())
    started = {**ids, "tokens": await tokens(app)}
    await serve(app, **started)


if __name__ == "__main__":
    run(main)
