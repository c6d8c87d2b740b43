"""Serve an application over real HTTP, for tests with a browser."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from keyhouse.http import App
from keyhouse.serve.listener import bind, listening
from keyhouse.settings.settings import Address


@asynccontextmanager
async def serving(app: App) -> AsyncIterator[str]:
    """Yield the URL of the application, at any free port."""
    with bind(Address("127.0.0.1", 0)) as bound:
        async with listening(
            app, bound, drain_seconds=2, reject=app.reject, stopping=app.end_streams
        ) as address:
            yield f"http://{address.host}:{address.port}"
