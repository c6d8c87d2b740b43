"""Viewing history as it is served, on a socket, and requests of it."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx
import jwt
from prometheus_client import CollectorRegistry

from keyhouse.clock import Clock
from keyhouse.engine import Engine
from keyhouse.http import App, make_app
from keyhouse.service.served_engine import ServedEngine
from keyhouse.service.spec import ServiceContext
from keyhouse.testing.conformance import Opener
from keyhouse_history import SYSTEM
from tests.support.threaded_service import FAST, SECRET, ThreadedService

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
        engine=ServedEngine(engine), data=folder, metrics=CollectorRegistry(), settings=given
    )
    return make_app([SYSTEM.service(context)])


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


class Service(ThreadedService):
    """The service of history."""

    def __init__(self, opener: Opener, folder: Path, **settings: Any) -> None:
        super().__init__(opener, folder, SYSTEM.service, "/history", jwt_secret=SECRET, **settings)

    def client(self, **claims: Any) -> httpx.Client:
        return self.http(token(self.clock, **claims))

    def viewer(self, profile: str) -> Viewer:
        return Viewer(self.client(profileId=profile), profile)


@contextmanager
def serving(opener: Opener, folder: Path, **settings: Any) -> Iterator[Service]:
    with Service(opener, folder, **settings) as service:
        yield service
