"""The endpoints, in the order of the document. A handler reads the request's parts, asks the service, and shapes the answer.

The customer is the caller's tenant and comes from nowhere else.
"""

import asyncio
from collections.abc import AsyncIterator, Iterator, Sequence
from typing import Final
from urllib.parse import quote

import msgspec

from keyhouse.auth import Caller
from keyhouse.errors import ConflictError, KeyFieldError, NotFoundError, QuotaError, RevisionError
from keyhouse.http import Conditions, Response, ResponseSpec, Route, Stream, etag
from keyhouse.systems.streamkit.bodies import (
    CONFIG_EXAMPLE,
    EXAMPLES,
    Batch,
    Config,
    Deleted,
    Health,
    ImportedReply,
    Listing,
    ListQuery,
    Outcome,
    Outcomes,
    Saved,
    Scene,
    StoredConfig,
    Switch,
    Switched,
    Top,
    TopQuery,
    Type,
)
from keyhouse.systems.streamkit.configs import Configs, Done
from keyhouse.systems.streamkit.customers import Customers
from keyhouse.systems.streamkit.listing import listed
from keyhouse.systems.streamkit.scenes import Scenes
from keyhouse.systems.streamkit.transfer import exported, imported
from keyhouse.systems.streamkit.wrangler import File, Item, Read, read

READ: Final = "read"
WRITE: Final = "write"

_LINE = msgspec.json.Encoder().encode
_PIECE_BYTES: Final = 64 * 1_024
_READ_AT_ONCE: Final = 25


class Handlers:
    def __init__(self, customers: Customers) -> None:
        self._customers = customers
        self._engine = customers.engine
        self._configs = Configs(customers)
        self._scenes = Scenes(customers)

    async def create(self, type: Type, body: Config, caller: Caller) -> Response[Saved]:
        """Make a config. Its id is the one sent, or the server's. Its times and its customer are the server's."""
        kept = await self._configs.create(caller.tenant, type, body)
        place = f"{type}/{quote(kept.id)}"  # as seen from this address, wherever the app is mounted
        saved = Saved(True, msgspec.Raw(kept.value))
        return Response(saved, status=201, headers=(("Location", place),), etag=etag(kept.revision))

    async def list(self, type: Type, query: ListQuery, caller: Caller) -> Listing:
        """List the configs of a type, in the order of their ids: all of them, a page, or those that changed since a time."""
        async with self._customers.get(caller.tenant).lists:
            page = await listed(
                self._engine,
                caller.tenant,
                type,
                limit=query.limit,
                cursor=query.cursor,
                since=query.since,
                ids_only=query.fields == "ids",
            )
        configs = [msgspec.Raw(value or _LINE({"id": id})) for id, value in page.configs]
        return Listing(configs, len(configs), page.cursor or msgspec.UNSET)

    async def get(self, type: Type, id: str, caller: Caller) -> Response[StoredConfig]:
        """One config. Its `ETag` stands for this state of it."""
        row = await self._configs.read(caller.tenant, type, id)
        return Response(row.value, etag=etag(row.revision))  # type: ignore[arg-type]  # the stored JSON is the answer

    async def replace(
        self, type: Type, id: str, body: Config, caller: Caller, conditions: Conditions
    ) -> Response[Saved]:
        """Replace a config; `createdAt` stays. With `If-Match`: only if it is still in that state."""
        kept = await self._configs.replace(caller.tenant, type, id, body, conditions.check)
        return Response(Saved(True, msgspec.Raw(kept.value)), etag=etag(kept.revision))

    async def delete(self, type: Type, id: str, caller: Caller, conditions: Conditions) -> Deleted:
        """Delete a config. It is no error when there was none."""
        return Deleted(True, await self._configs.delete(caller.tenant, type, id, conditions.check))

    async def batch(self, type: Type, body: Batch, caller: Caller) -> Outcomes:
        """Many creates, updates and deletes of configs of one type: all of them, or none."""
        done = await self._configs.batch(caller.tenant, type, body.operations, etag)
        return Outcomes(True, [_outcome(each) for each in done])

    async def record(self, body: Switch, caller: Caller) -> Switched:
        """Count a switch to a scene. A scene that is not switched to for 30 days is forgotten."""
        scene = await self._scenes.record(caller.tenant, body.scene_name)
        return Switched(True, scene.scene_name, scene.count, scene.last_used)

    async def top(self, query: TopQuery, caller: Caller) -> Top:
        """The scenes that were switched to most often."""
        async with self._customers.get(caller.tenant).lists:
            scenes = await self._scenes.top(caller.tenant, query.limit)
        return Top(
            [Scene(each.scene_name, each.count, each.last_used) for each in scenes], len(scenes)
        )

    async def export(self, caller: Caller) -> Response[Stream]:
        """All that the customer keeps, as a file that `wrangler kv bulk put` and `POST /import` read."""
        name = (("Content-Disposition", 'attachment; filename="streamkit.json"'),)
        return Response(_written(exported(self._engine, caller.tenant)), headers=name)

    async def load(self, body: File, caller: Caller) -> ImportedReply:
        """Put what an export holds over what is there, its times included. Nothing is written when any of it is wrong."""
        customer = self._customers.get(caller.tenant)
        done = await imported(
            customer, await _fairly(read(body, self._engine.clock.now())), self._customers.keys
        )
        return ImportedReply(True, done.written, done.unchanged, done.expired)

    async def health(self) -> Health:
        """Whether the store answers."""
        await self._engine.read("health", ("health",))
        return Health("ok")


def routes(customers: Customers) -> Sequence[Route]:
    """The route table of Streamkit."""
    on = Handlers(customers)
    saved = {"success": True, "config": CONFIG_EXAMPLE}
    tag = {"ETag": "This state of the config, for If-Match and If-None-Match."}
    created = ResponseSpec(
        type=Saved,
        about="It was made.",
        example=saved,
        headers={"Location": "Where it is now.", **tag},
    )
    room = [QuotaError, KeyFieldError]
    file_bytes_max = 2 * customers.most.bytes + 1_024 * 1_024  # escaped in JSON, text grows
    return (
        Route(
            method="POST",
            path="/configs/{type}",
            handler=on.create,
            scope=WRITE,
            replies={201: created},
            problems=[ConflictError, *room],
            example=EXAMPLES["notes"],
        ),
        Route(method="GET", path="/configs/{type}", handler=on.list, scope=READ),
        Route(
            method="GET",
            path="/configs/{type}/{id}",
            handler=on.get,
            scope=READ,
            replies={200: ResponseSpec(type=StoredConfig, example=CONFIG_EXAMPLE, headers=tag)},
            problems=[NotFoundError],
        ),
        Route(
            method="PUT",
            path="/configs/{type}/{id}",
            handler=on.replace,
            scope=WRITE,
            replies={200: ResponseSpec(type=Saved, example=saved, headers=tag)},
            problems=[NotFoundError, RevisionError, *room],
            example=EXAMPLES["notes"],
        ),
        Route(
            method="DELETE",
            path="/configs/{type}/{id}",
            handler=on.delete,
            scope=WRITE,
            problems=[RevisionError],
        ),
        Route(
            method="POST",
            path="/configs/{type}:batch",
            handler=on.batch,
            scope=WRITE,
            problems=[NotFoundError, ConflictError, RevisionError, *room],
            example={
                "operations": [
                    {"op": "create", "config": EXAMPLES["notes"]},
                    {"op": "delete", "id": "old"},
                ]
            },
            body_bytes_max=file_bytes_max,
        ),
        Route(
            method="POST",
            path="/scene-activity/record",
            handler=on.record,
            scope=WRITE,
            problems=room,
            example={"sceneName": "Gaming Scene"},
        ),
        Route(method="GET", path="/scene-activity/top", handler=on.top, scope=READ),
        Route(
            method="GET",
            path="/export",
            handler=on.export,
            scope=READ,
            replies={
                200: ResponseSpec(
                    type=list[Item], about="One entry for each config and each scene."
                )
            },
        ),
        Route(
            method="POST",
            path="/import",
            handler=on.load,
            scope=WRITE,
            problems=room,
            example=[
                {
                    "key": "cust_12345_streamkit_notes_note1",
                    "value": msgspec.json.encode(CONFIG_EXAMPLE).decode(),
                }
            ],
            body_bytes_max=file_bytes_max,
        ),
        Route(method="GET", path="/health", handler=on.health),
    )


async def _fairly(entries: Iterator[Read]) -> list[Read]:
    """All of them. A file has thousands, and others are to be answered while they are looked at."""
    found: list[Read] = []
    for each in entries:
        found.append(each)
        if len(found) % _READ_AT_ONCE == 0:
            await asyncio.sleep(0)
    return found


def _outcome(done: Done) -> Outcome:
    if done.value is None:
        return Outcome("delete", done.id, deleted=done.deleted)
    return Outcome(
        "create" if done.op == "create" else "update", done.id, config=msgspec.Raw(done.value)
    )


async def _written(items: AsyncIterator[Item]) -> AsyncIterator[bytes]:
    """A JSON array, some of it at a time."""
    piece = bytearray(b"[")
    first = True
    async for each in items:
        piece += b"\n" if first else b",\n"
        piece += _LINE(each)
        first = False
        if len(piece) >= _PIECE_BYTES:
            yield bytes(piece)
            piece.clear()
    yield bytes(piece) + b"\n]\n"
