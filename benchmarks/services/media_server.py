"""`python -m benchmarks.services.media_server baseline|ours FOLDER`: a measured server process.

Both variants run on the same server and answer ranges of the file `audio`. `ours` is a service with
files and event streams on SQLite; `baseline` reads the file in the same pieces, and checks nothing.
It prints its port.
"""

import asyncio
import os
import re
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Final

import msgspec
import uvloop
from prometheus_client import CollectorRegistry

from keyhouse import Record, Schema, Space, Store, open_engine
from keyhouse.http import EventStream, FileResponse, FileRoot, Route, make_app
from keyhouse.http.file_response import PIECE_BYTES
from keyhouse.serve.listener import bind, listening
from keyhouse.serve.process import tune_gc
from keyhouse.service.blocking import BlockingPool
from keyhouse.service.event_hub import EventHub
from keyhouse.service.spec import ServiceSpec
from keyhouse.settings.settings import Address

FILE: Final = "audio"
Handler = Callable[..., Awaitable[Any]]
_RANGE: Final = re.compile(rb"bytes=(\d+)-(\d+)")


class Playing(msgspec.Struct):
    id: str
    number: int


PLAYING = Record(Playing, "playing:{id}")
SCHEMA = Schema("media", PLAYING, space=Space("a benchmark"))


class Media:
    def __init__(self, store: Store, folder: Path) -> None:
        self._store = store
        self._hub = EventHub()
        self._files = FileRoot(folder, run=BlockingPool(pending_max=1_000).run)

    async def watch(self) -> EventStream:
        """Stream the changes of one record."""
        return self._hub.stream(self._store, PLAYING, id="now")

    async def change(self, number: int) -> int:
        """Commit a change of the record; answer when it is on disk."""
        return (await self._store.put(PLAYING, Playing("now", number))).revision

    async def file(self) -> FileResponse:
        """Return the file, or a range of it."""
        return FileResponse(self._files, FILE, media_type="audio/mpeg")

    def spec(self) -> ServiceSpec:
        handlers: dict[str, Handler] = {
            "/watch": self.watch,
            "/change/{number}": self.change,
            f"/{FILE}": self.file,
        }
        routes = [
            Route(method="GET", path=path, handler=handler) for path, handler in handlers.items()
        ]
        return ServiceSpec(name="media", routes=routes)


def by_hand(folder: Path) -> Any:
    """Return an ASGI application that reads each range in pieces and sends them."""
    file = os.open(folder / FILE, os.O_RDONLY)

    async def app(scope: Any, receive: Any, send: Any) -> None:
        found = _RANGE.fullmatch(dict(scope["headers"]).get(b"range", b""))
        assert found is not None
        at, last = int(found[1]), int(found[2])
        length = (b"content-length", b"%d" % (last + 1 - at))
        await send({"type": "http.response.start", "status": 206, "headers": [length]})
        while at <= last:
            piece = os.pread(file, min(PIECE_BYTES, last + 1 - at), at)
            at += len(piece)
            await send({"type": "http.response.body", "body": piece, "more_body": at <= last})

    return app


async def main(variant: str, folder: Path) -> None:
    if variant == "ours":
        store = Store(SCHEMA, await open_engine(f"sqlite:{folder}/media.db"), "all")
        app = make_app([Media(store, folder).spec()], registry=CollectorRegistry())
    else:
        app = by_hand(folder)
    async with listening(app, bind(Address("127.0.0.1", 0)), drain_seconds=0) as address:
        tune_gc()  # as `keyhouse serve` does; for the baseline too
        print(address.port, flush=True)
        await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)


if __name__ == "__main__":
    uvloop.run(main(sys.argv[1], Path(sys.argv[2])))
