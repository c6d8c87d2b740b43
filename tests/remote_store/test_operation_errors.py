"""Errors of operations of one's own are the same from a RemoteStore over HTTP and over NATS."""

import asyncio
from pathlib import Path
from typing import Any

from msgspec import Struct

from keyhouse import Record, RemoteStore, Schema, Space, Store, errors, operation
from keyhouse.errors import ConflictError, KeyhouseError
from tests.service.schema_service.support.nats_caller import called
from tests.service.schema_service.support.served import serving
from tests.support.engine_openers import ALL
from tests.support.nats_servers import nats_server


class Song(Struct):
    id: str


class Failure(Struct):
    kind: str


KINDS = {
    name: kind
    for name, kind in vars(errors).items()
    if isinstance(kind, type) and issubclass(kind, KeyhouseError)
}


def _own(kind: type[KeyhouseError]) -> KeyhouseError:
    """Return an error of a class of one's own, whose constructor takes other arguments."""

    class OwnSongError(kind):  # type: ignore[misc, valid-type]  # a class of the table
        def __init__(self, song: str, seconds: int) -> None:
            super().__init__("Wait for the song.", song=song, seconds=seconds)

    return OwnSongError("pie", 3)


@operation(access="write")
async def fail(store: Store, request: Failure) -> None:
    name = request.kind
    if name == "ValueError":
        raise ValueError("a bug")
    raise _own(KINDS[name[3:]]) if name.startswith("own") else KINDS[name]("A sentence.")


SONGS = Schema("songs", Record(Song, "song:{id}"), operations=[fail], space=Space("a channel"))
FAILURES = ["ValueError", *KINDS, *(f"own{name}" for name in KINDS)]


async def _raised(store: Any) -> dict[str, tuple[type[KeyhouseError], str]]:
    raised = {}
    for name in FAILURES:
        try:
            await store.call(fail, Failure(name))
        except KeyhouseError as error:
            raised[name] = (type(error), error.type)
    return raised


def test_an_error_of_ones_own_operation_has_one_class_over_http_and_nats(tmp_path: Path) -> None:
    """An own ConflictError was a CallerError over NATS, as was a bug of the service."""
    (tmp_path / "http").mkdir()

    async def over_http() -> Any:
        async with RemoteStore(SONGS, served.url, served.token("ann")) as store:
            return await _raised(store)

    async def over_nats() -> Any:
        async with (
            called("memory", tmp_path, SONGS),
            RemoteStore(SONGS, nats_server().url, space="ann") as store,
        ):
            return await _raised(store)

    with serving(ALL["sqlite"](tmp_path / "http"), tmp_path / "http", SONGS) as served:
        http = asyncio.run(over_http())
    nats = asyncio.run(over_nats())
    assert [*http] == FAILURES
    assert nats == http
    assert http["ownConflictError"] == (ConflictError, "own-song")
    assert http["ValueError"][0] is KeyhouseError, "it blames neither the caller nor the engine"
    for name, kind in KINDS.items():
        assert http[name][0] is kind
