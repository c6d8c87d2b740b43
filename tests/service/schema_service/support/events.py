"""Reads Server-Sent Events from a response."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import httpx


class SentEvent(NamedTuple):
    name: str
    id: str | None
    data: Any


@contextmanager
def watching(
    box: httpx.Client, query: str, last: int | None = None
) -> Iterator[Iterator[SentEvent]]:
    """Open `/watch`; the block gets an iterator over its events."""
    headers = {} if last is None else {"Last-Event-ID": str(last)}
    with box.stream("GET", f"/watch?{query}", headers=headers) as response:
        assert response.status_code == 200, response.read()
        assert response.headers["content-type"] == "text/event-stream"
        yield _events(response)


def _events(response: httpx.Response) -> Iterator[SentEvent]:
    block: dict[str, str] = {}
    for line in response.iter_lines():
        if not line:
            if "event" in block:
                yield SentEvent(block["event"], block.get("id"), json.loads(block["data"]))
            block = {}
            continue
        name, _, value = line.partition(":")
        block[name] = value.removeprefix(" ")
