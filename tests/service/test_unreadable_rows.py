"""A stored row that does not decode, because another program wrote it or a disk failed: reading,
changing and deleting its record are answered by the same error.

Playlist treats such a row as another program's: see `test_playlist_foreign_rows.py`. Streamkit's
GET sends a row as it is stored, without decoding it.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import pytest

from keyhouse.clock import Clock
from keyhouse.engine import Batch, Engine, Put, Span
from keyhouse.engines.memory import MemoryEngine
from systems.audiobooks.tests.support.service import LibraryService
from systems.history.tests.support.service import Service as HistoryService
from systems.history.tests.support.service import token, viewing
from tests.service.schema_service.support.served import SMALL, serving
from tests.support.threaded_service import ThreadedService


class Case(NamedTuple):
    """A service, a client, the key of a record, and requests of that record."""

    service: ThreadedService
    client: httpx.Client
    key: str
    requests: list[tuple[str, str, Any]]


async def _open(clock: Clock, *, changes_kept: int = 100) -> Engine:
    return MemoryEngine(clock=clock, changes_kept=changes_kept)


@contextmanager
def history(folder: Path) -> Iterator[Case]:
    with HistoryService(_open, folder) as service:
        client = service.http(token(service.clock, sub="p1"))
        path = "/profiles/p1/assets/a1"
        client.put(path, json=viewing(1)).raise_for_status()
        requests = [("GET", path, None), ("PUT", path, viewing(2)), ("DELETE", path, None)]
        yield Case(service, client, "IN_PROGRESS|a1", requests)


@contextmanager
def own_schema(folder: Path) -> Iterator[Case]:
    with serving(_open, folder) as service:
        client = service.client()
        path = "/records/recipe/pie"
        client.put(path, json=SMALL).raise_for_status()
        requests = [("GET", path, None), ("PUT", path, SMALL), ("DELETE", path, None)]
        yield Case(service, client, "recipe:pie", requests)


@contextmanager
def audiobooks(folder: Path) -> Iterator[Case]:
    with LibraryService(_open, folder) as service:
        client = service.admin()
        made = client.post("/authors", json={"name": "Ursula"})
        made.raise_for_status()
        id = made.json()["data"]["id"]
        path = f"/authors/{id}"
        requests = [("GET", path, None), ("PUT", path, {"name": "X"}), ("DELETE", path, None)]
        yield Case(service, client, f"a:{id}", requests)


SYSTEMS: list[Callable[[Path], Any]] = [history, own_schema, audiobooks]


@pytest.mark.parametrize("system", SYSTEMS, ids=lambda each: each.__name__)
@pytest.mark.parametrize("value", [b"7", b"no JSON", b'{"a":[]}', b"[" * 20_000])
def test_reading_changing_and_deleting_an_unreadable_row_are_one_error(
    tmp_path: Path, system: Callable[[Path], Any], value: bytes
) -> None:
    """Of one item of another program, GET was 404 "no such asset" and PUT 500."""
    with system(tmp_path) as case:

        async def spoil(engine: Engine) -> None:
            spaces = [each async for each in engine.spaces()]
            rows = {space: (await engine.scan(space, Span(), limit=1_000)).rows for space in spaces}
            [space] = [each for each in spaces if case.key in [row.key for row in rows[each]]]
            await engine.commit(space, Batch(puts=(Put(case.key, value),)))

        case.service.on_engine(spoil)
        sent = [
            case.client.request(method, path, json=body) for method, path, body in case.requests
        ]
        answers = {(each.status_code, each.headers["content-type"], _kind(each)) for each in sent}
        assert len(answers) == 1, answers
        [(status, _, _)] = answers
        assert status == 500

        async def stored(engine: Engine) -> bool:
            spaces = [each async for each in engine.spaces()]
            found = [(await engine.read(space, (case.key,)))[0] for space in spaces]
            return value in [row.value for row in found if row is not None]

        assert case.service.on_engine(stored), "the row is left as it is"


def _kind(response: httpx.Response) -> object:
    """Return the part of an error that programs look at."""
    error = response.json()
    return error.get("type") or error.get("code")
