"""Event streams end with the credentials that opened them, and one tenant has a limited number."""

from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from keyhouse import Store, open_engine
from keyhouse.auth import (
    AnyAuth,
    Authenticator,
    Caller,
    JwtSettings,
    SessionAuth,
    StoredSession,
    jwt_auth,
    mint,
    new_token,
)
from keyhouse.clock import ManualClock
from keyhouse.http import EventStream, Route, event_stream
from keyhouse.service.event_hub import EventHub
from keyhouse.service.spec import ServiceSpec
from tests.http.support.event_client import watching
from tests.http.support.real_server import run, serving
from tests.service.test_event_hub import BOARD, CLIP, Clip
from tests.support.polling import until


class Board:
    def __init__(self, engine: Any, auth: Authenticator) -> None:
        self.engine = engine
        self.auth = auth
        self.hub = EventHub()

    def store(self, tenant: str) -> Store:
        return Store(BOARD, self.engine, tenant)

    async def mine(self, caller: Caller) -> EventStream:
        """Stream the caller's changes."""
        return self.hub.stream(self.store(caller.tenant), CLIP)

    async def open(self, caller: Caller | None) -> EventStream:
        """Stream the changes of everybody."""
        return self.hub.stream(self.store("all"), CLIP)

    def spec(self) -> ServiceSpec:
        return ServiceSpec(
            name="board",
            auth=self.auth,
            routes=[
                Route(method="GET", path="/mine", handler=self.mine, scope="read"),
                Route(method="GET", path="/open", handler=self.open, scope=""),
            ],
        )

    async def put(self, tenant: str) -> None:
        await self.store(tenant).put(CLIP, Clip("a", "one"))


class StoredSessions:
    """Sessions in a dict, whose times are those of the clock."""

    def __init__(self, clock: ManualClock) -> None:
        self.by_id: dict[str, StoredSession] = {}
        self.clock = clock
        self.reads = 0
        self.renewals = 0

    async def get(self, id: str) -> StoredSession | None:
        self.reads += 1
        return self.by_id.get(id)

    async def renew(self, id: str, expires: int) -> None:
        self.renewals += 1

    def add(self, name: str) -> str:
        made = new_token(name)
        self.by_id[name] = StoredSession(
            caller=Caller(tenant=name, scopes=frozenset({"read"})),
            secret_hash=made.secret_hash,
            expires=self.clock.now() + 3_600_000,
        )
        return made.token

    def auth(self) -> SessionAuth:
        return SessionAuth(
            self.get,
            cookie="sid",
            bearer=True,
            sliding_seconds=3_600,
            renew=self.renew,
            clock=self.clock,
        )


def bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


@pytest.mark.parametrize("is_cookie", [False, True])
def test_a_stream_ends_when_its_token_has_expired(
    tmp_path: Path, is_cookie: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One by a cookie continued until the next check of its session."""
    monkeypatch.setattr(event_stream, "EVENT_STREAM_CHECK_SECONDS", 3_600)

    async def scenario() -> None:
        clock = ManualClock()
        settings = JwtSettings(jwt_leeway_seconds=0)
        auth = jwt_auth(settings, tmp_path, system="board", clock=clock)
        token = mint(settings, tmp_path, "ann", system="board", seconds=60, clock=clock)
        headers = {"Cookie": f"auth_token={token}"} if is_cookie else bearer(token)
        board = Board(await open_engine("memory:"), auth)
        async with (
            serving(board.spec()) as client,
            watching(client.port, "/board/mine", **headers) as stream,
        ):
            await board.put("ann")
            assert await stream.next() is not None
            clock.advance(seconds=61)
            await board.put("ann")
            assert await stream.next() is None, "ended before the event"

    run(scenario)


def test_a_stream_ends_when_its_session_is_revoked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_stream, "EVENT_STREAM_CHECK_SECONDS", 0.0)

    async def scenario() -> None:
        sessions = StoredSessions(ManualClock())
        headers = {"Cookie": f"sid={sessions.add('ann')}"}
        board = Board(await open_engine("memory:"), AnyAuth(sessions.auth(), sessions.auth()))
        async with (
            serving(board.spec()) as client,
            watching(client.port, "/board/mine", **headers) as stream,
        ):
            await board.put("ann")
            assert await stream.next() is not None
            del sessions.by_id["ann"]
            await board.put("ann")
            assert await stream.next() is None

    run(scenario)


def test_an_open_stream_does_not_extend_a_session_and_seldom_reads_it() -> None:
    async def scenario() -> None:
        clock = ManualClock()
        sessions = StoredSessions(clock)
        headers = bearer(sessions.add("ann"))
        board = Board(await open_engine("memory:"), sessions.auth())
        async with (
            serving(board.spec()) as client,
            watching(client.port, "/board/mine", **headers) as stream,
        ):
            clock.advance(seconds=1_800)
            for _ in range(20):
                await board.put("ann")
                assert await stream.next() is not None
            assert sessions.renewals == 0
            assert sessions.reads < 10

    run(scenario)


def test_one_tenant_cannot_open_all_event_streams(tmp_path: Path) -> None:
    async def scenario() -> None:
        settings = JwtSettings()
        auth = jwt_auth(settings, tmp_path, system="board")
        ann, ben = (
            bearer(mint(settings, tmp_path, name, system="board")) for name in ("ann", "ben")
        )
        board = Board(await open_engine("memory:"), auth)
        async with (
            serving(board.spec(), tenant_streams_max=2) as client,
            AsyncExitStack() as streams,
        ):
            for _ in range(2):
                await streams.enter_async_context(watching(client.port, "/board/mine", **ann))
            refused = await client.get("/mine", headers=ann)
            assert refused.status_code == 429
            assert refused.json()["code"] == "QUOTA_EXCEEDED"
            assert refused.json()["detail"] == (
                "Too many event streams are open: close some of them."
            )
            assert refused.json()["fields"] == {"limit": 2}
            await streams.enter_async_context(watching(client.port, "/board/mine", **ben))
            for _ in range(2):  # without a caller the address counts
                await streams.enter_async_context(watching(client.port, "/board/open"))
            assert (await client.get("/open")).status_code == 429
            assert len(board.hub) == 5
            await streams.aclose()
            await until(lambda: not len(board.hub))
            async with watching(client.port, "/board/mine", **ann) as stream:
                assert stream.status == 200, "closed streams are no longer counted"

    run(scenario)
