"""One request whose text takes long to process stops nobody: no parameter of any route or operation
keeps the event loop for a tenth of a second, and none is an internal error.

The time is the CPU time of the thread that runs the event loop, per request.
"""

import asyncio
import json
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any, Final

import httpx
import nats
import pytest

from keyhouse.operations.requests import SchemaRequest
from keyhouse.operations.table import kinds_of
from tests.abuse import routes
from tests.abuse.bombs import (
    PERSON,
    Bomb,
    LoopTime,
    Texts,
    body_bombs,
    header_bombs,
    route_bombs,
    status_of,
    statuses_of,
)
from tests.abuse.support.listing_server import least_value, member_values
from tests.abuse.support.names import NAMES
from tests.abuse.support.server import ServerProcess, store_cheap_passwords
from tests.abuse.test_operations import EXPENSIVE, OF_OTHERS, listed_subjects
from tests.abuse.test_routes import SCHEMAS as ROUTES_SCHEMAS
from tests.abuse.test_routes import SYSTEMS

LOOP_SECONDS_MAX: Final = 0.1
RSS_GROWTH_BYTES_MAX: Final = 256 * 1_024 * 1_024
SENT_AT_ONCE: Final = 24
ATTEMPTS: Final = 3
"""A request that took long is repeated: a sweep or a collection of garbage may have been beside."""

ERRORS_OF_OTHERS: Final = {503}
"""No robot, no library: a documented answer of playlist and audiobooks."""

NAMES_SCHEMA: Final = "tests.abuse.support.names:NAMES"
SCHEMAS: Final = {**ROUTES_SCHEMAS, "names": NAMES_SCHEMA}
OPERATIONS: Final[dict[str, dict[str, dict[str, Any]]]] = {
    "rosey": EXPENSIVE,
    **OF_OTHERS,
}
"""Requests of the operations, by service."""

EXAMPLES_OF_KINDS: Final[dict[str, dict[str, Any]]] = {
    "record": {"record": "person", "fields": {"id": "a"}, "value": PERSON},
    "counter": {"counter": "hits", "fields": {"name": "n"}},
    "log": {"log": "renamed", "fields": {"name": "n"}, "value": {"name": "n"}},
}
PERSON_ROWS: Final[list[dict[str, Any]]] = [
    {"by": "name", "fields": {"name": "n"}},
    {"by": "title", "fields": {"title.prefix": "t"}},
    {"by": "tag", "fields": {"tag": "t"}},
    {"by": "tag_count", "fields": {"tag": "t"}},
    {"operations": [{"op": "put", "record": "person", "value": PERSON}]},
]
"""Requests of a schema by the kinds of what it declares, and by its derived rows."""

UNLIMITED: Final = {"rate_per_second": 0.0}


def _tables() -> dict[str, dict[str, Any]]:
    tables = {name: dict(table) for name, table in routes.TABLES.items()}
    for name in (*SYSTEMS, *SCHEMAS):
        tables.setdefault(name, {}).update(UNLIMITED)
    tables["http"] = {"proxies": ["127.0.0.1"]}
    return tables


@pytest.mark.long
@pytest.mark.soak
@pytest.mark.parametrize("system", [*SYSTEMS, *SCHEMAS, "studio", ""])
def test_no_text_in_a_request_keeps_the_event_loop(system: str, tmp_path: Path) -> None:
    also = [SCHEMAS.get(system, system)] if system in SYSTEMS or system in SCHEMAS else []
    named = dict.fromkeys([*also, "streamkit"])
    tables = {
        name: table
        for name, table in _tables().items()
        if name in {*named, system, "studio", "http"}
    }
    if system == "audiobooks":
        store_cheap_passwords(tmp_path)  # hashing is in threads, which are not measured
    with ServerProcess(tmp_path, *named, **tables) as server:
        calls = routes.route_calls(server, system)
        if system in SCHEMAS:  # what one route stores, another finds
            calls = [call._replace(token=calls[0].token) for call in calls]
        check, texts = _Check(server), Texts()
        for call in calls:
            check.http_all(route_bombs(call, texts))
        for call in [call for call in calls if call.method == "GET"][:1]:  # rosey has no routes
            check.http_all(header_bombs(call))
        check.finish()


@pytest.mark.long
@pytest.mark.soak
@pytest.mark.parametrize("service", [*OPERATIONS, "names"])
def test_no_text_in_a_message_keeps_the_event_loop(service: str, tmp_path: Path) -> None:
    system = SCHEMAS.get(service, service)
    tables = {service: UNLIMITED}
    if service == "playlist":
        tables[service] = {**UNLIMITED, **routes.TABLES["playlist"]}
    with ServerProcess(tmp_path, system, "streamkit", **tables) as server:
        asyncio.run(_bomb_operations(server, service))


async def _bomb_operations(server: ServerProcess, service: str) -> None:
    subjects = await listed_subjects(server.nats_of(service), service)
    assert set(OPERATIONS.get(service, subjects)) == set(subjects), "one has no attack here"
    check, texts = _Check(server), Texts()
    connection = await nats.connect(server.nats_of(service))
    for operation, subject in subjects.items():
        for body, members, values in _requests(service, operation):
            for name, data in body_bombs(body, texts, members, values):
                if len(data) > connection.max_payload:
                    continue  # the server closes the connection
                await check.nats(f"{operation} {name}", connection, subject, data)
    await connection.close()
    check.finish()


def _requests(
    service: str, operation: str
) -> Iterator[tuple[dict[str, Any], Iterable[str], dict[str, Any]]]:
    """Yield examples of a request, names of members that take a bomb, and their values: those of a
    schema from its declaration, so that an operation that is added is attacked too."""
    if service in OPERATIONS:
        yield OPERATIONS[service][operation], (), {}
        return
    for own in NAMES.operations:
        if own.name == operation:
            values = member_values(own.request)
            yield least_value(own.request), [*values], values
            return
    members = SchemaRequest.__struct_fields__
    for name, example in EXAMPLES_OF_KINDS.items():
        if name in (kinds_of(operation) or ["record"]):
            known = {key: value for key, value in example.items() if key in members}
            yield known, members, {}
            for row in PERSON_ROWS if name == "record" else ():
                yield {**known, **row}, (), {}


class _Check:
    """Sends bombs, and gathers those that took long or were errors.

    Some are sent at once: if they take no longer than one may, none of them does. Otherwise, or if
    there is an error, each is sent alone.
    """

    def __init__(self, server: ServerProcess) -> None:
        self._server = server
        self._loop = LoopTime(server)
        self._rss = server.rss_bytes
        self._found: list[str] = []
        self._sent = 0
        self._slowest = (0.0, "")

    def http_all(self, bombs: Iterable[Bomb]) -> None:
        remaining = iter(bombs)
        while some := list(islice(remaining, SENT_AT_ONCE)):
            start = self._loop.seconds
            statuses = statuses_of(self._server, [bomb.request for bomb in some])
            pairs = zip(some, statuses, strict=True)
            is_slow = self._is_slow(start, f"{len(some)} from {some[0].name}")
            if is_slow or any(self._is_error(bomb, status) for bomb, status in pairs):
                for bomb in some:
                    self.http(bomb)

    def http(self, bomb: Bomb) -> None:
        for _ in range(ATTEMPTS):
            start = self._loop.seconds
            status = status_of(self._server, bomb.request)
            if not self._is_slow(start, bomb.name):
                break
        else:
            self._found.append(f"{self._loop.seconds - start:.2f} s: {bomb.name}")
        if self._is_error(bomb, status):
            self._found.append(f"{status}: {bomb.name}")

    def _is_error(self, bomb: Bomb, status: int) -> bool:
        is_limited = status == 429 and not bomb.counts_attempts
        return is_limited or (status >= 500 and status not in ERRORS_OF_OTHERS)

    async def nats(self, name: str, connection: Any, subject: str, data: bytes) -> None:
        for _ in range(ATTEMPTS):
            start = self._loop.seconds
            reply = await connection.request(subject, data, timeout=60)
            if not self._is_slow(start, name):
                break
        else:
            self._found.append(f"{self._loop.seconds - start:.2f} s: {name}")
        answer = json.loads(reply.data)
        if "INTERNAL_ERROR" in str(answer).upper():
            self._found.append(f"{answer}: {name}")

    def _is_slow(self, start: float, name: str) -> bool:
        taken = self._loop.seconds - start
        self._sent += 1
        self._slowest = max(self._slowest, (taken, name))
        return taken > LOOP_SECONDS_MAX

    def finish(self) -> None:
        growth = self._server.rss_bytes - self._rss
        print(f"{self._sent} requests, slowest {self._slowest}, RSS {growth >> 20:+} MB")
        assert not self._found, "\n".join([f"{len(self._found)} of {self._sent}", *self._found])
        assert growth < RSS_GROWTH_BYTES_MAX
        log = self._server.log.read_text()
        assert "unhandled exception" not in log and "Traceback" not in log, log[-3_000:]


def test_an_anonymous_login_with_200_kb_of_marks_stopped_every_system_for_29_seconds(
    tmp_path: Path,
) -> None:
    """CPython sorts a run of combining marks by insertion, with the GIL held."""
    store_cheap_passwords(tmp_path)
    with ServerProcess(tmp_path, "audiobooks", "streamkit") as server:
        api = f"{server.http}/audiobooks/api/v1/auth"
        who = {"username": "mallory", "password": routes.PASSWORD}
        httpx.post(f"{api}/setup", json=who, timeout=60).raise_for_status()
        loop = LoopTime(server)
        for count in (12_000, 50_000):
            start, name = loop.seconds, "\u0300" * count + "\u0316" * count
            body = json.dumps({"username": name, "password": "x"}, ensure_ascii=False).encode()
            headers = {"Content-Type": "application/json"}
            login = httpx.post(f"{api}/login", content=body, headers=headers, timeout=300)
            assert login.status_code == 422 and len(login.content) < 1_000
            form = {"username": name, "password": "x"}
            page = httpx.post(f"{server.http}/audiobooks/login", data=form, timeout=300)
            assert page.status_code == 422
            assert loop.seconds - start < 2 * LOOP_SECONDS_MAX
        start = loop.seconds
        for wrong in ("\u0300" * 64, "\ufdfa" * 64, "\ud800".encode("utf-8", "replace").decode()):
            answer = httpx.post(f"{api}/login", json={**who, "username": wrong}, timeout=60)
            assert answer.status_code == 401, answer.text
        assert loop.seconds - start < 3 * LOOP_SECONDS_MAX
