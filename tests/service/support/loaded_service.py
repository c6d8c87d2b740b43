"""A service with events, files and logins in its own process: the server of the load test.

Prints its port, then commits a change every quarter of a second until its input is closed.
"""

import asyncio
import sys
import time
from pathlib import Path

import msgspec
import uvloop

from keyhouse import Record, Schema, Space, Store, Template, open_engine
from keyhouse.http import EventStream, FileResponse, FileRoot, Route
from keyhouse.serve.process import tune_gc
from keyhouse.service.accounts.passwords import Passwords
from keyhouse.service.blocking import BlockingPool
from keyhouse.service.event_hub import EventHub
from keyhouse.service.spec import ServiceSpec
from keyhouse.service.thread_priority import prefer_event_loop
from tests.http.support.real_server import serving

COMMIT_SECONDS = 0.25


class Tick(msgspec.Struct):
    id: str
    at: float


TICK = Record(Tick, Template("tick:{id}"), name="tick")
SCHEMA = Schema("ticks", TICK, space=Space("one"))


class Loaded:
    def __init__(self, store: Store, folder: Path, stored: str, passwords: Passwords) -> None:
        self.store = store
        self.hub = EventHub()
        self.files = FileRoot(folder, run=BlockingPool(threads_max=4, pending_max=1_000).run)
        self.passwords = passwords
        self.stored = stored

    async def watch(self) -> EventStream:
        """Stream the ticks."""
        return self.hub.stream(self.store, TICK)

    async def file(self) -> FileResponse:
        """One file."""
        return FileResponse(self.files, "audio", media_type="audio/mpeg")

    async def sign_in(self) -> bool:
        """Verify a password."""
        return (await self.passwords.verify(self.stored, "wrong")).is_valid

    async def ping(self) -> int:
        """Return the number of open streams."""
        return len(self.hub)

    def spec(self) -> ServiceSpec:
        handlers = {
            "/watch": self.watch,
            "/file": self.file,
            "/in": self.sign_in,
            "/ping": self.ping,
        }
        return ServiceSpec(
            name="load",
            routes=[
                Route(method="GET", path=path, handler=handler)
                for path, handler in handlers.items()
            ],
        )


async def main(folder: Path) -> None:
    passwords = Passwords()
    store = Store(SCHEMA, await open_engine("memory:"), "all")
    loaded = Loaded(store, folder, await passwords.hash("right"), passwords)
    async with serving(loaded.spec(), tenant_streams_max=0) as client:
        tune_gc()  # as `serve` does
        print(client.port, flush=True)
        closed = asyncio.create_task(asyncio.to_thread(sys.stdin.read))
        while not closed.done():
            await asyncio.sleep(COMMIT_SECONDS)
            await store.put(TICK, Tick("now", time.time()))


if __name__ == "__main__":
    prefer_event_loop()  # as `serve` does
    uvloop.run(main(Path(sys.argv[1])))
