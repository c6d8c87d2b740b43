"""Viewing history as it is served, on a socket, and requests of it."""

import asyncio
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx
import jwt
from prometheus_client import CollectorRegistry

from keyhouse.clock import Clock, ManualClock
from keyhouse.engine import Engine
from keyhouse.http import App, make_app
from keyhouse.serve.listener import listening
from keyhouse.service.spec import ServiceContext
from keyhouse.systems.history.service import build
from keyhouse.testing.conformance import Opener

SECRET = "only-for-tests-0123456789abcdef-0123456789"
TIMEOUT_SECONDS = 60
FAST = {"rate_per_second": 1e6, "rate_burst": 1_000_000}
"""A rate that no test reaches by accident."""

EXT = {
    "showCategoryId": "1446",
    "seasonCategoryId": "1450",
    "sport": "cricket",
    "series-id": "4",
    "team-ids": "60091,60092",
}


def app_of(engine: Engine, folder: Path, **settings: Any) -> App:
    given = {"jwt_secret": SECRET, **FAST, **settings}
    context = ServiceContext(
        engine=engine, data=folder, metrics=CollectorRegistry(), settings=given
    )
    return make_app([build(context)])


def token(clock: Clock, **claims: Any) -> str:
    now = clock.now() // 1_000
    return jwt.encode({"iat": now, "exp": now + 3_600, **claims}, SECRET, algorithm="HS256")


def at(second: float) -> str:
    """A time of day, so many seconds after noon."""
    minutes, rest = divmod(second, 60)
    return f"2026-01-18T{12 + int(minutes) // 60:02d}:{int(minutes) % 60:02d}:{rest:06.3f}Z"


def viewing(second: float, progress: float = 50, **others: Any) -> dict[str, Any]:
    """The body of an event, with a total time of 100."""
    return {
        "assetType": "movie",
        "totalTime": 100,
        "progress": progress,
        "updateTime": at(second),
        **others,
    }


class Viewer:
    """A client of one profile, which checks the status of each response."""

    def __init__(self, client: httpx.Client, profile: str) -> None:
        self.http = client
        self.path = f"/profiles/{quote(profile, safe='')}"

    def close(self) -> None:
        self.http.close()

    def ask(
        self, method: str, path: str, *, status: int = 200, json: Any = None, **options: Any
    ) -> Any:
        response = self.http.request(method, self.path + path, json=json, **options)
        assert response.status_code == status, response.text
        if status >= 400:
            assert response.headers["content-type"] == "application/problem+json"
        return response.json() if response.content else None

    def put(self, asset: str, *event: Any, status: int = 200, **others: Any) -> Any:
        path = f"/assets/{quote(asset, safe='')}"
        return self.ask("PUT", path, json=viewing(*event, **others), status=status)

    def get(self, asset: str) -> list[Any]:
        return self.ask("GET", f"/assets/{quote(asset, safe='')}")["entries"]  # type: ignore[no-any-return]

    def facet(self, path: str, status: int = 200) -> Any:
        return self.ask("GET", f"/facets/{path}", status=status)

    def listed(self, path: str) -> list[str]:
        """The assets of a facet, in order."""
        return ids(self.facet(path)["entries"])


def ids(entries: list[Any]) -> list[str]:
    return [entry["attr"]["assetId"] for entry in entries]


class Service:
    """A service on a socket, with the clock that it goes by. Its engine lives on its own thread's
    loop."""

    def __init__(self, opener: Opener, folder: Path, **settings: Any) -> None:
        self.clock = ManualClock()
        self.opener = opener
        self._folder = folder
        self._settings = settings
        self._socket = socket.socket()
        self._socket.bind(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._socket.getsockname()[1]}/history"
        self._started = threading.Event()
        self._stop: Callable[[], object] = lambda: None
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.loop: asyncio.AbstractEventLoop | None = None
        self.engine: Engine | None = None

    def client(self, **claims: Any) -> httpx.Client:
        headers = {"Authorization": f"Bearer {token(self.clock, **claims)}"}
        plain = httpx.HTTPTransport(verify=False)
        return httpx.Client(
            base_url=self.url, headers=headers, timeout=TIMEOUT_SECONDS, transport=plain
        )

    def viewer(self, profile: str) -> Viewer:
        return Viewer(self.client(profileId=profile), profile)

    def run(self, work: Callable[[Engine], Any]) -> Any:
        """Run a coroutine function on the service's engine, and return its result."""
        assert self.loop is not None and self.engine is not None
        return asyncio.run_coroutine_threadsafe(work(self.engine), self.loop).result(
            TIMEOUT_SECONDS
        )

    def __enter__(self) -> "Service":
        self._thread.start()
        assert self._started.wait(TIMEOUT_SECONDS), "the service did not start"
        if self._failure is not None:
            raise self._failure
        return self

    def __exit__(self, *_: object) -> None:
        self._stop()
        self._thread.join(TIMEOUT_SECONDS)

    def _run(self) -> None:
        try:
            asyncio.run(self._serve())
        except BaseException as error:
            self._failure = error
        finally:
            self._started.set()

    async def _serve(self) -> None:
        self.engine = await self.opener(self.clock)
        try:
            app = app_of(self.engine, self._folder, **self._settings)
            self.loop, ending = asyncio.get_running_loop(), asyncio.Event()
            self._stop = partial(self.loop.call_soon_threadsafe, ending.set)
            async with listening(app, self._socket, drain_seconds=TIMEOUT_SECONDS):
                self._started.set()
                await ending.wait()
        finally:
            await self.engine.close()


@contextmanager
def serving(opener: Opener, folder: Path, **settings: Any) -> Iterator[Service]:
    with Service(opener, folder, **settings) as service:
        yield service
