"""A schema as it is served: by the listener of `serve`, on a real socket, in a separate thread."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx

from keyhouse.auth import JwtSettings, mint
from keyhouse.schema import Schema
from keyhouse.service.schema_service.service import schema_service
from keyhouse.testing.conformance import Opener
from tests.service.schema_service.support.recipes import BOX
from tests.support.engine_openers import NARROWED
from tests.support.nats_servers import nats_server
from tests.support.threaded_service import SECRET, ThreadedService

ENGINES = [
    name
    for name in ("sqlite", "postgres", "jetstream")
    if not NARROWED or name in NARROWED.split(",")
]
"""The engines on which every row of the service is tested."""

SMALL = {"id": "pie", "title": "Pie", "slug": "apple-pie"}


class Served(ThreadedService):
    """A schema that is served, with its background tasks."""

    def __init__(self, opener: Opener, folder: Path, schema: Schema = BOX, **settings: Any) -> None:
        build: Any = schema_service(schema)
        given = {"jwt_secret": SECRET, **settings}
        super().__init__(opener, folder, build, f"/{schema.name}", runs_tasks=True, **given)

    def token(self, tenant: str = "ann", *scopes: str) -> str:
        settings = JwtSettings(jwt_secret=SECRET)
        return mint(settings, Path(), tenant, clock=self.clock, scopes=scopes or None)

    def client(self, tenant: str = "ann", *scopes: str, **headers: str) -> httpx.Client:
        """Return a client with a token of these scopes, by default read and write."""
        return self.http(self.token(tenant, *scopes), headers=headers)


def start_server(kind: str) -> None:
    """Start the server of an engine here: it would end with the thread that starts it."""
    if kind == "jetstream":
        nats_server()


@contextmanager
def serving(
    opener: Opener, folder: Path, schema: Schema = BOX, **settings: Any
) -> Iterator[Served]:
    with Served(opener, folder, schema, **settings) as served:
        yield served
