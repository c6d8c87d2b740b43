"""URLs of engines for services that run in their own processes."""

import asyncio
import secrets
from pathlib import Path

from tests.support.engine_openers import NARROWED, postgres_schema
from tests.support.nats_servers import nats_server

SERVED_ENGINES = [
    name
    for name in ("sqlite", "postgres", "jetstream")
    if not NARROWED or name in NARROWED.split(",")
]


def engine_url(kind: str, folder: Path) -> str:
    """Return the URL of an empty engine. Servers outlive the processes that use them."""
    if kind == "postgres":
        return asyncio.run(postgres_schema())
    if kind == "jetstream":
        return f"{nats_server().url}/?bucket=t{secrets.token_hex(8)}&sync=always"
    return f"sqlite:{folder}/rows.db"
