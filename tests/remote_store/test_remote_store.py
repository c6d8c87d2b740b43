"""A remote store: what differs from a Store because a service is between."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import aclosing
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import pytest
from msgspec import Struct

from keyhouse import (
    Clock,
    Counter,
    Index,
    Log,
    Record,
    RemoteStore,
    Schema,
    Space,
    fixed,
    open_engine,
    per_write,
)
from keyhouse.engine import Engine
from keyhouse.errors import (
    AccessError,
    ContentionError,
    KeyFieldError,
    ScopeError,
    TokenError,
    UnavailableError,
    UnreadableError,
    UsageError,
)
from keyhouse.remote_store.http_transport import HttpTransport
from keyhouse.remote_store.nats_transport import NatsTransport
from tests.service.schema_service.support.served import Served
from tests.support.polling import until


class Member(Struct, kw_only=True):
    id: str
    name: str
    secret: str = ""
    born: date | None = None
    seen: datetime = datetime(2026, 1, 1, tzinfo=UTC)


class Visit(Struct, kw_only=True):
    member: str


NEWEST = Index("newest:{seen:-time}:{id}")
BORN = Index("born:{born:date}:{id}")
MEMBER = Record(Member, "member:{id}", NEWEST, BORN, private=("secret",))
SETUP = Record(str, "setup", name="setup")
PLACE = Record(int, "place:{x:03d}:{y:05.2f}", name="place")
VISITS = Counter("visits:{id}:{day:date}", expiry=fixed(100_000))
VISIT = Log(Visit, "visit:{member}:{at:ulid}")
CLUB = Schema("club", MEMBER, SETUP, PLACE, VISITS, VISIT, space=Space("a club"))
OTHER = Record(str, "other:{id}", name="other")
KEPT = Record(str, "kept:{id}", name="kept", expiry=per_write())


async def opened(clock: Clock, *, changes_kept: int = 0) -> Engine:
    return await open_engine("memory:", clock=clock)


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with Served(opened, tmp_path_factory.mktemp("club"), CLUB) as running:
        yield running


def played(served: Served, story: Callable[[RemoteStore], Awaitable[None]], space: str) -> None:
    async def main() -> None:
        async with RemoteStore(CLUB, served.url, served.token(space)) as store:
            await asyncio.wait_for(story(store), 60)

    asyncio.run(main())


def test_days_times_and_numbers_come_back_as_they_were(served: Served) -> None:
    async def story(store: RemoteStore) -> None:
        ada = Member(id="ada", name="Ada", born=date(1815, 12, 10))
        bo = Member(id="bo", name="Bo", seen=datetime(2026, 2, 1, tzinfo=UTC))
        await store.put_many(MEMBER, [ada, bo])
        assert await store.get(MEMBER, id="ada") == ada
        newest = [entry.record.id async for entry in store.scan(MEMBER, by=NEWEST)]
        assert newest == ["bo", "ada"]
        since = (datetime(2026, 1, 15, tzinfo=UTC), None)
        assert await store.count(NEWEST, between=since) == 1
        born = [e.record.id async for e in store.scan(MEMBER, by=BORN, born=date(1815, 12, 10))]
        assert born == ["ada"]
        entry = await store.put(PLACE, 7, x=3, y=1.5)
        assert entry.key == "place:003:00150" and await store.get(PLACE, **entry.fields) == 7
        assert [e.record async for e in store.scan(PLACE, x=3)] == [7]

    played(served, story, "types")


def test_private_members_are_written_and_not_read(served: Served) -> None:
    async def story(store: RemoteStore) -> None:
        entry = await store.put(MEMBER, Member(id="a", name="A", secret="s"))
        assert entry.record.secret == "s"  # what was sent
        found = await store.get(MEMBER, id="a")
        assert found is not None and found.secret == ""
        await store.update(MEMBER, {"name": "B"}, id="a")
        found = await store.get(MEMBER, id="a")
        assert found is not None and found.name == "B"

    played(served, story, "private")


def test_a_record_without_key_fields(served: Served) -> None:
    async def story(store: RemoteStore) -> None:
        assert await store.get(SETUP) is None
        await store.put(SETUP, "done")
        assert await store.get(SETUP) == "done"
        assert await store.delete(SETUP) and not await store.delete(SETUP)

    played(served, story, "setup")


def test_counters_by_day_and_logs(served: Served) -> None:
    async def story(store: RemoteStore) -> None:
        await store.add(VISITS, 2, id="ada")
        assert await store.sum_of_days(VISITS, 1, id="ada") == 2
        entry = await store.append(VISIT, Visit(member="ada"))
        assert entry.fields["member"] == "ada"
        assert [e.record async for e in store.scan(VISIT, member="ada")] == [Visit(member="ada")]

        async def work(tx: Any) -> None:
            await tx.append(VISIT, Visit(member="bo"))
            await tx.add(VISITS, 1, id="bo")

        await store.transact(work)
        assert await store.sum_of_days(VISITS, 7, id="bo") == 1 and await store.count(VISIT) == 2

    played(served, story, "logs")


def test_a_page_of_a_log_has_the_revision_from_which_to_watch(served: Served) -> None:
    """Over HTTP it was 0, since the route left it out: a watch sent old events again."""

    async def story(store: RemoteStore) -> None:
        await store.append(VISIT, Visit(member="ada"))
        page = await store.page(VISIT, member="ada")
        assert page.revision >= page.entries[0].revision
        later = await store.append(VISIT, Visit(member="bo"))
        async for event in store.watch(VISIT, since=page.revision):
            assert event.key == later.key
            break

    played(served, story, "log-pages")


def test_a_transaction_sees_its_writes_and_checks_its_reads(served: Served) -> None:
    async def story(store: RemoteStore) -> None:
        async with store.transaction() as tx:
            await tx.put(MEMBER, Member(id="a", name="A"))
            found = await tx.get(MEMBER, id="a")
            assert found is not None and found.name == "A"
            assert await tx.delete(MEMBER, id="a") and await tx.get(MEMBER, id="a") is None
            await tx.put(MEMBER, Member(id="b", name="B"))
        assert [e.record.id async for e in store.scan(MEMBER)] == ["b"]
        with pytest.raises(ContentionError):
            async with store.transaction() as tx:
                await tx.get(MEMBER, id="b")
                await tx.put(MEMBER, Member(id="c", name="C"))
                await store.update(MEMBER, {"name": "other"}, id="b")
        assert await store.get(MEMBER, id="c") is None
        with pytest.raises(UsageError, match="has no revision"):
            await store.transact(lambda tx: tx.get(VISITS, id="a"))
        with pytest.raises(UsageError, match="async function"):
            await store.transact(lambda tx: None)  # type: ignore[arg-type,return-value]

    played(served, story, "tx")


def test_invalid_calls_name_the_declaration(served: Served) -> None:
    async def story(store: RemoteStore) -> None:
        with pytest.raises(UsageError, match="no such declaration"):
            await store.get(OTHER, id="a")
        with pytest.raises(UsageError, match="no such declaration"):
            await store.page(MEMBER, by=Index("x:{id}"))
        with pytest.raises(UsageError, match="does not put"):
            await store.put(VISITS, 3, id="a", day=date(2026, 1, 1))
        with pytest.raises(UsageError, match="append"):
            await store.put(VISIT, Visit(member="a"))
        with pytest.raises(KeyFieldError):
            await store.get(PLACE, x="three", y=1)
        with pytest.raises(UsageError, match="10,000"):
            await store.page(MEMBER, limit=10_001)

    played(served, story, "wrong")


@pytest.mark.parametrize("token", ["", " ", "a\n", "é"])
def test_a_token_that_cannot_be_one_is_rejected_before_a_request(token: str) -> None:
    """An empty one, of a command that failed, was reported as a service that does not answer."""
    with pytest.raises(UsageError, match="Invalid token: `keyhouse token` makes one"):
        RemoteStore(CLUB, "http://localhost:1", token)


def test_tokens_and_services_that_are_not_there(served: Served) -> None:
    async def main() -> None:
        async with RemoteStore(CLUB, served.url, "nonsense") as store:
            with pytest.raises(TokenError):
                await store.get(MEMBER, id="a")
        async with RemoteStore(CLUB, served.url, served.token("ann", "read")) as store:
            assert await store.get(MEMBER, id="a") is None
            with pytest.raises(ScopeError):
                await store.put(MEMBER, Member(id="a", name="A"))
        async with RemoteStore(CLUB, "http://127.0.0.1:1", "t") as store:
            with pytest.raises(UnavailableError):
                await store.put(MEMBER, Member(id="a", name="A"))
        token = served.token("admin", "read", "write", "spaces")
        async with RemoteStore(CLUB, served.url, token, space="elsewhere") as store:
            await store.put(MEMBER, Member(id="a", name="A"))
        async with RemoteStore(CLUB, served.url, served.token("elsewhere")) as store:
            assert await store.count(MEMBER) == 1

    asyncio.run(main())
    with pytest.raises(UsageError, match="http://localhost:8080"):
        RemoteStore(CLUB, "sqlite:x.db", "t")


def test_a_watch_shows_each_change_and_ends_with_its_block(served: Served, tmp_path: Path) -> None:
    async def story(store: RemoteStore) -> None:
        seen: list[tuple[str, bool]] = []
        ready = asyncio.Event()

        async def follow() -> None:
            ready.set()
            async for event in store.watch(MEMBER, since=0, prefix="a"):
                seen.append((event.fields["id"], event.gone))
                if len(seen) == 3:
                    return

        task = asyncio.create_task(follow())
        await ready.wait()
        await store.put(MEMBER, Member(id="ann", name="A"))
        await store.put(MEMBER, Member(id="bo", name="B"))
        await store.put(MEMBER, Member(id="abe", name="A"))
        await until(lambda: len(seen) >= 2)
        await store.delete(MEMBER, id="ann")
        await task
        assert seen == [("ann", False), ("abe", False), ("ann", True)]

    played(served, story, "watched")


def test_many_records_are_read_by_one_request(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It sent one request a record."""
    sent: list[str] = []

    def count(kind: Any) -> None:
        call = kind.call

        async def counted(transport: Any, operation: str, body: dict[str, Any]) -> Any:
            sent.append(operation)
            return await call(transport, operation, body)

        monkeypatch.setattr(kind, "call", counted)

    count(HttpTransport)
    count(NatsTransport)

    async def story(store: RemoteStore) -> None:
        names = [f"m{at:03d}" for at in range(600)]
        for start in range(0, 600, 100):
            batch = [Member(id=name, name=name) for name in names[start : start + 100]]
            await store.put_many(MEMBER, batch)
        sent.clear()
        found = await store.get_many(MEMBER, [{"id": name} for name in names])
        assert [each and each.name for each in found] == names
        assert sent == ["get_many", "get_many"]
        assert await store.get_many(SETUP, [{}]) == [None]
        with pytest.raises(UsageError):
            await store.entry(VISITS, id="a", day=date(2026, 1, 1))

    played(served, story, "many")


def test_large_records_are_read_by_more_requests(served: Served) -> None:
    async def story(store: RemoteStore) -> None:
        text = "x" * 300_000
        for at in range(20):
            await store.put(MEMBER, Member(id=f"m{at}", name=text))
        found = await store.entries(MEMBER, [{"id": f"m{at}"} for at in range(21)])
        assert [each is not None for each in found] == [True] * 20 + [False]

    played(served, story, "large")


async def _stopped(task: "asyncio.Future[Any]") -> None:
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


def test_a_watch_reports_when_it_has_caught_up(served: Served) -> None:
    """It took neither `unreadable` nor `caught_up`."""

    async def story(store: RemoteStore) -> None:
        first = await store.put(SETUP, "a")
        complete: asyncio.Queue[int] = asyncio.Queue()
        seen: list[str] = []

        async def follow(since: int | None) -> None:
            watch = store.watch(MEMBER, since=since, caught_up=complete.put_nowait)
            async with aclosing(watch):
                async for event in watch:
                    seen.append(event.fields["id"])

        following = asyncio.create_task(follow(None))
        assert await asyncio.wait_for(complete.get(), 30) >= first.revision
        entry = await store.put(MEMBER, Member(id="a", name="A"))
        while await asyncio.wait_for(complete.get(), 30) < entry.revision:
            pass
        assert seen == ["a"]
        await _stopped(following)
        newest = (await store.put(SETUP, "b")).revision
        following = asyncio.create_task(follow(entry.revision))
        while await asyncio.wait_for(complete.get(), 30) < newest:
            pass
        await _stopped(following)
        assert seen == ["a"], "the newer change is of another record"
        with pytest.raises(UsageError):
            await anext(store.watch(MEMBER, since=-1))

    played(served, story, "caught-up")


def test_a_record_that_the_client_does_not_decode_is_left_out_if_asked(served: Served) -> None:
    class OlderMember(Struct, kw_only=True):
        id: str
        name: int

    older = Record(OlderMember, "member:{id}", name="member", private=())
    schema = Schema("club", older, space=Space("a club"))

    async def story(store: RemoteStore) -> None:
        entry = await store.put(MEMBER, Member(id="a", name="A"))
        token = served.token("older")
        async with RemoteStore(schema, served.url, token) as reader:
            with pytest.raises(UnreadableError) as error:
                await anext(reader.watch(older, since=entry.revision - 1))
            assert error.value.fields["revision"] == entry.revision
            with pytest.raises(UnreadableError):
                await reader.get_many(older, [{"id": "a"}])
            assert await reader.get_many(older, [{"id": "a"}], unreadable="skip") == [None]
            left_out: list[str] = []
            watch = reader.watch(
                older,
                since=entry.revision - 1,
                unreadable=lambda each: left_out.append(each.row.key),
                caught_up=lambda revision: None,
            )
            waiting = asyncio.ensure_future(anext(watch))
            await until(lambda: left_out)
            assert left_out == ["member:a"] and not waiting.done()
            await _stopped(waiting)

    played(served, story, "older")


READS: dict[str, Callable[[RemoteStore], Awaitable[object]]] = {
    "get": lambda store: store.get(MEMBER, id="a"),
    "get_many": lambda store: store.get_many(MEMBER, [{"id": "a"}]),
    "scan": lambda store: anext(store.scan(MEMBER)),
    "scan by an index": lambda store: anext(store.scan(MEMBER, by=BORN)),
    "page": lambda store: store.page(MEMBER, limit=3),
    "count": lambda store: store.count(MEMBER),
    "count of rows": lambda store: store.count(BORN),
}
WRITES: dict[str, Callable[[RemoteStore], Awaitable[object]]] = {
    "put": lambda store: store.put(SETUP, "x"),
    "put with ttl": lambda store: store.put(KEPT, "x", ttl=20, id="a"),
    "update": lambda store: store.update(MEMBER, {"name": "B"}, id="a"),
}


@pytest.mark.parametrize("closed", [{"http": False}, {"read_only": True}])
def test_a_closed_or_read_only_record_is_an_access_error_of_each_call(
    tmp_path: Path, closed: dict[str, bool]
) -> None:
    """A call with query parameters, such as a scan or a `ttl`, was a UsageError."""
    schema = Schema("club", MEMBER, SETUP, KEPT, space=Space("a club"))
    records = dict.fromkeys(("member", "setup", "kept"), closed)

    async def main(served: Served) -> None:
        async with RemoteStore(schema, served.url, served.token("a")) as store:
            for name, call in (WRITES if "read_only" in closed else READS | WRITES).items():
                with pytest.raises(AccessError):
                    await call(store)
                    pytest.fail(name)

    with Served(opened, tmp_path, schema, records=records) as served:
        asyncio.run(main(served))
