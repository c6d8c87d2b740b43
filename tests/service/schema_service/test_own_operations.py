"""Operations of one's own beside the generated ones: over HTTP, over NATS, and from every store."""

import asyncio
import json
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from msgspec import Struct

from keyhouse import (
    ManualClock,
    Meta,
    Operation,
    Record,
    RemoteStore,
    Schema,
    Space,
    Store,
    Transaction,
    open_engine,
    operation,
    sync,
)
from keyhouse.errors import DeclarationError, NotFoundError, PreparingError, UsageError
from keyhouse.schema.operation import OPERATIONS
from keyhouse.service.schema_service.own_operations import call_operation
from keyhouse.service.schema_service.space import SchemaSpace
from keyhouse.service.schema_service.system import with_meta
from keyhouse.service.usage import Quota
from keyhouse.store import build_indexes, note_new_space
from tests.service.schema_service.support.nats_caller import called
from tests.service.schema_service.support.served import Served, serving
from tests.service.schema_service.support.songs import (
    POINTS,
    SONG,
    SONGS,
    CooldownError,
    Points,
    Queued,
    Song,
    SongRequest,
    best,
    request_song,
    skip,
)
from tests.support.engine_openers import ALL

REQUEST = {"user": "ada", "song": "pie"}


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    with serving(ALL["sqlite"](tmp_path), tmp_path, SONGS) as each:
        each.client().put("/records/song/pie", json={"title": "Pie"})
        yield each


def test_an_operation_is_a_route_with_the_errors_and_scopes_of_generated_ones(
    served: Served,
) -> None:
    client = served.client()
    done = client.post("/operations/request_song", json=REQUEST)
    assert (done.status_code, done.json()) == (200, {"song": "pie", "points": 1})
    again = client.post("/operations/request_song", json=REQUEST)
    assert again.status_code == 409
    assert again.json()["type"] == "urn:keyhouse:error:cooldown"
    assert again.json()["fields"] == {"user": "ada"}
    served.clock.advance(seconds=30)
    assert client.post("/operations/request_song", json=REQUEST).json()["points"] == 2
    absent = client.post("/operations/request_song", json={"user": "bo", "song": "no"})
    assert absent.status_code == 404
    assert client.post("/operations/best").json() == {"users": ["ada"]}
    assert client.post("/operations/skip").status_code == 204


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ({"user": "ada"}, 422),
        ({**REQUEST, "sng": 1}, 422),
        ({**REQUEST, "song": 1}, 422),
        ([], 422),
    ],
)
def test_a_request_of_another_type_does_not_reach_the_function(
    served: Served, body: Any, status: int
) -> None:
    assert served.client().post("/operations/request_song", json=body).status_code == status


def test_the_scope_of_an_operation_is_its_access(served: Served) -> None:
    for name, scope, status in (
        ("skip", "read", 403),
        ("skip", "write", 204),
        ("best", "write", 403),
        ("best", "read", 200),
    ):
        response = served.client("ann", scope).post(f"/operations/{name}")
        assert response.status_code == status, (name, scope)
    assert served.http().post("/operations/best").status_code == 401


def test_an_operation_works_in_the_space_of_its_caller(served: Served) -> None:
    served.client("ann").post("/operations/request_song", json=REQUEST)
    other = served.client("bob").post("/operations/request_song", json=REQUEST)
    assert other.status_code == 404
    assert served.client("bob").post("/operations/best").json() == {"users": []}


def test_a_read_that_writes_and_a_reply_of_another_type_are_errors_of_the_service(
    served: Served,
) -> None:
    for name in ("sneak", "mistaken", "failing"):
        failed = served.client().post(f"/operations/{name}")
        assert failed.status_code == 500, name
        assert "a bug" not in failed.text
    assert served.client().get("/records/song/sneaked").status_code == 404


def test_an_operation_loses_no_update_under_concurrency(served: Served) -> None:
    def ask(number: int) -> int:
        body = {"user": f"u{number % 4}", "song": "pie"}
        return served.client().post("/operations/request_song", json=body).status_code

    with ThreadPoolExecutor(8) as pool:
        statuses = list(pool.map(ask, range(32)))
    assert sorted(statuses) == [200] * 4 + [409] * 28


def test_an_operation_keeps_to_the_quota(tmp_path: Path) -> None:
    """A plain store of its space would not be counted."""
    with serving(ALL["sqlite"](tmp_path), tmp_path, SONGS, quota_keys=20) as served:
        client = served.client()
        assert client.post("/operations/skip").status_code == 204
        asked = [
            client.post("/operations/request_song", json={"user": f"u{n}", "song": "skipped"})
            for n in range(20)
        ]
        statuses = [each.status_code for each in asked]
        assert statuses[0] == 200 and statuses[-1] == 429
        assert asked[-1].json()["type"] == "urn:keyhouse:error:quota"


def test_an_operation_counts_towards_the_rate(tmp_path: Path) -> None:
    rates = {"rate_per_second": 0.001, "rate_burst": 2}
    with serving(ALL["sqlite"](tmp_path), tmp_path, SONGS, **rates) as served:
        client = served.client()
        assert [client.post("/operations/best").status_code for _ in range(3)] == [200, 200, 429]


def test_openapi_describes_an_operation(served: Served) -> None:
    document = served.http().get("/openapi.json").json()
    described = document["paths"]["/operations/request_song"]["post"]
    assert described["summary"] == "Ask for a song: once in 30 seconds, for a point."
    assert "SongRequest" in json.dumps(described["requestBody"])
    assert "Queued" in json.dumps(described["responses"]["200"])
    assert "requestBody" not in document["paths"]["/operations/best"]["post"]


def test_an_operation_is_the_same_over_nats(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with called("sqlite", tmp_path, SONGS) as call:
            put = {"record": "song", "fields": {"id": "pie"}, "value": {"title": "Pie"}}
            await call("put", put)
            done = await call("request_song", REQUEST)
            assert done == {"success": True, "song": "pie", "points": 1}
            again = await call("request_song", REQUEST)
            assert (again["success"], again["error_code"]) == (False, "CONFLICT")
            assert await call("skip", {}) == {"success": True}
            assert (await call("best", {}))["users"] == ["ada"]
            wrong = await call("request_song", {"user": 1})
            assert wrong["error_code"] == "VALIDATION_ERROR"
            assert (await call("nothing", {}))["error_code"] == "INVALID_SUBJECT"

    asyncio.run(scenario())


def test_call_is_the_same_on_every_store(served: Served) -> None:
    async def remote() -> list[object]:
        async with RemoteStore(SONGS, served.url, served.token("remote")) as store:
            return await seen(store)

    async def local() -> list[object]:
        async with open_engine("memory:", clock=ManualClock()) as engine:
            return await seen(Store(SONGS, engine, "local"))

    async def seen(store: Any) -> list[object]:
        await store.put(SONG, Song(id="pie", title="Pie"))
        first = await store.call(request_song, SongRequest(user="ada", song="pie"))
        found: list[object] = [first, await store.call(skip)]
        for asked in (SongRequest(user="ada", song="pie"), SongRequest(user="bo", song="no")):
            try:
                await store.call(request_song, asked)
            except (CooldownError, NotFoundError) as error:
                found.append((type(error), error.type, error.sentence, error.fields))
        return [*found, (await store.call(best)).users, await store.get(POINTS, user="ada")]

    expected = asyncio.run(local())
    assert expected[0] == Queued(song="pie", points=1)
    assert asyncio.run(remote()) == expected
    with sync.RemoteStore(SONGS, served.url, served.token("sync")) as store:
        store.put(SONG, Song(id="pie", title="Pie"))
        asked = SongRequest(user="ada", song="pie")
        assert store.call(request_song, asked) == Queued(song="pie", points=1)
        with pytest.raises(UsageError, match="another type") as wrong:
            store.call(request_song, Song(id="a", title="A"))  # type: ignore[misc]
        assert wrong.value.fields["needed"] == "SongRequest"
        with pytest.raises(UsageError, match="the operation itself"):
            store.call("request_song", asked)  # type: ignore[arg-type]


def test_an_operation_waits_for_an_index_that_is_not_complete() -> None:
    """Its list would lack the records of old code, and say nothing."""
    old = Record(Points, "points:{user}")
    before = with_meta(Schema("songs", SONG, old, space=Space("a channel"), meta=Meta()))

    async def scenario() -> None:
        async with open_engine("memory:", clock=ManualClock()) as engine:
            store = Store(before, engine, "ann")
            await note_new_space(store)
            await store.put(old, Points(user="ada", points=3))
            space = SchemaSpace("ann", engine, Quota(), schema=with_meta(SONGS))
            with pytest.raises(PreparingError):
                await call_operation(space, best, None)
            await build_indexes(space.store)
            assert (await call_operation(space, best, None)).users == ["ada"]

    asyncio.run(scenario())


def test_a_schema_describes_its_operations(served: Served) -> None:
    [first, *_] = served.client().get("/schema").json()["operations"]
    assert (first["name"], first["access"]) == ("request_song", "write")
    assert "song" in first["request"] and "points" in first["reply"]


# Declarations


class Asked(Struct):
    id: str


class Success(Struct):
    success: bool


async def no_types(store, request): ...  # type: ignore[no-untyped-def]


async def no_reply(store: Store, request: Asked): ...  # type: ignore[no-untyped-def]


async def a_transaction(tx: Transaction, request: Asked) -> None: ...


async def a_text(store: Store, request: str) -> None: ...


async def a_list(store: Store) -> list[Asked]: ...  # type: ignore[empty-body]


async def perhaps(store: Store) -> Success | None: ...


async def three(store: Store, request: Asked, more: int) -> None: ...


async def starred(store: Store, *requests: Asked) -> None: ...


async def says_success(store: Store) -> Success: ...  # type: ignore[empty-body]


async def Named(store: Store) -> None: ...


def plain(store: Store) -> None: ...


@pytest.mark.parametrize(
    ("function", "sentence"),
    [
        (no_types, "Annotate every parameter"),
        (no_reply, "Annotate every parameter"),
        (a_transaction, "The first parameter of an operation is a Store"),
        (a_text, "are each one Struct"),
        (a_list, "are each one Struct"),
        (perhaps, r"or None alone.*Success \| None"),
        (three, "An operation takes a store and a request"),
        (starred, "An operation takes a store and a request"),
        (says_success, "A reply has no member `success`"),
        (Named, "The name of an operation"),
        (plain, "An operation is an async function"),
    ],
)
def test_a_wrong_signature_is_an_error_of_the_declaration(function: Any, sentence: str) -> None:
    with pytest.raises(DeclarationError, match=sentence):
        operation(access="write")(function)


async def fine(store: Store) -> None: ...


def test_a_wrong_access_or_list_is_an_error_of_the_declaration() -> None:
    with pytest.raises(DeclarationError, match="read or write"):
        operation(access="admin")(fine)  # type: ignore[arg-type]
    made: Operation[None, None] = operation(access="read")(fine)
    for operations, sentence in (([fine], "@operation"), ([made, made], "same name")):
        with pytest.raises(DeclarationError, match=sentence):
            Schema("s", SONG, operations=operations, space=Space("a channel"))  # type: ignore[arg-type]


@pytest.mark.parametrize("name", [*OPERATIONS, "errors", "storage"])
def test_a_name_of_a_generated_operation_is_rejected_where_the_schema_is_declared(
    name: str,
) -> None:
    """It was rejected by `serve` only."""
    own = operation(access="read", name=name)(fine)
    with pytest.raises(DeclarationError, match="of this name") as raised:
        Schema("s", SONG, operations=[own], space=Space("a channel"))
    assert "…" not in str(raised.value)


BARE: Any = operation


@pytest.mark.parametrize("declare", [lambda: BARE(fine), lambda: BARE()(fine)])
def test_an_operation_without_its_access_raises_an_error_that_says_what_to_write(
    declare: Callable[[], object],
) -> None:
    """`@operation` raised a TypeError about positional arguments."""
    with pytest.raises(DeclarationError, match=r'write @operation\(access="read"\)'):
        declare()


WRITES: dict[str, Callable[[Any], Any]] = {
    "put": lambda store: store.put(SONG, Song(id="pie", title="Pie")),
    "put_many": lambda store: store.put_many(SONG, [Song(id="pie", title="Pie")]),
    "update": lambda store: store.update(SONG, {"title": "Pie"}, id="pie"),
    "delete": lambda store: store.delete(SONG, id="pie"),
    "transact": lambda store: store.transact(lambda tx: tx.delete(SONG, id="pie")),
    "transaction": lambda store: store.transaction().__aenter__(),
    "call": lambda store: store.call(skip),
    "clear": lambda store: store.clear(),
    "forget": lambda store: store.forget(),
}


@pytest.mark.parametrize("write", WRITES)
def test_a_read_operation_that_writes_is_rejected_by_a_store_as_by_a_service(write: str) -> None:
    """`Store.call` let it write, so that only the service rejected it."""

    @operation(access="read")
    async def sneaky(store: Store) -> None:
        await store.get(SONG, id="pie")
        await WRITES[write](store)

    async def scenario() -> None:
        async with open_engine("memory:", clock=ManualClock()) as engine:
            store = Store(SONGS, engine, "ann")
            await store.put(SONG, Song(id="pie", title="Apple pie"))
            with pytest.raises(DeclarationError, match="must not write"):
                await store.call(sneaky)
            assert await store.get(SONG, id="pie") == Song(id="pie", title="Apple pie")
            space = SchemaSpace("ann", engine, Quota(), schema=with_meta(SONGS))
            with pytest.raises(DeclarationError):
                await call_operation(space, sneaky, None)

    asyncio.run(scenario())
