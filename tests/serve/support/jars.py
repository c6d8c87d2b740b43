"""A small service for tests of the server: jars with a number, over NATS and HTTP, and ways to
fail.
"""

import asyncio
from collections.abc import AsyncIterator
from typing import Annotated, Any

import msgspec

from keyhouse.engine import Batch, Put
from keyhouse.errors import UnavailableError
from keyhouse.http import Response, ResponseSpec, Route, Stream
from keyhouse.nats.endpoint import Endpoint, Request
from keyhouse.service.spec import ServiceContext, ServiceSpec
from keyhouse.settings import read_settings, setting
from tests.support.polling import until


class Settings(msgspec.Struct, kw_only=True):
    shelf: Annotated[str, setting("Where jars stand.")] = "shelf"


def service(context: ServiceContext) -> ServiceSpec:
    engine = context.engine
    shelf = read_settings(Settings, context.settings, table="jars").shelf

    async def put(name: str, number: int) -> None:
        await engine.commit(shelf, Batch(puts=(Put(name, b"%d" % number),)))

    async def get(name: str) -> int | None:
        [row] = await engine.read(shelf, [name])
        return None if row is None else int(row.value)

    async def answer(request: Request) -> bytes:
        name, number = msgspec.json.decode(request.data, type=tuple[str, int | None])
        if number is not None:
            await put(name, number)
        return msgspec.json.encode(await get(name))

    async def slow(name: str) -> dict[str, Any]:
        (context.data / "slow-started").touch()
        await until(lambda: (context.data / "slow-released").exists())
        return {"name": name}

    async def forever(name: str) -> Response[Stream]:
        async def pieces() -> AsyncIterator[bytes]:
            yield b"started"
            await asyncio.Event().wait()

        return Response(pieces(), media_type="text/plain")

    async def ready() -> None:
        if (context.data / "broken").exists():
            raise UnavailableError("The jars are broken.")

    return ServiceSpec(
        name="jars",
        title="Jars",
        routes=[
            Route(method="PUT", path="/jars/{name}", handler=_putting(put)),
            Route(method="GET", path="/jars/{name}", handler=get),
            Route(method="GET", path="/slow/{name}", handler=slow),
            Route(
                method="GET",
                path="/forever/{name}",
                handler=forever,
                replies={200: ResponseSpec(type=bytes, media_type="text/plain")},
            ),
        ],
        endpoints=[Endpoint(name="jars", subject="jars.put", handler=answer, public=True)],
        ready=ready,
    )


def without_nats(context: ServiceContext) -> ServiceSpec:
    whole = service(context)
    return ServiceSpec(name=whole.name, routes=whole.routes)


def _putting(put: Any) -> Any:
    async def handler(name: str, body: int) -> None:
        await put(name, body)

    return handler
