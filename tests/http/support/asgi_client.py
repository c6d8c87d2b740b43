"""Send a request to an ASGI app as a server does, and collect the response."""

import asyncio
import json
from typing import Any

import msgspec


class Answered(msgspec.Struct):
    status: int
    headers: list[tuple[str, str]]
    body: bytes
    pieces: int
    unread: int
    """Pieces of the request's body that the app did not ask for."""

    def header(self, name: str) -> str | None:
        found = [value for each, value in self.headers if each == name]
        assert len(found) <= 1, f"{name} was sent more than once"
        return found[0] if found else None

    def json(self) -> Any:
        return json.loads(self.body)


def ask(
    app: Any,
    method: str,
    path: str,
    body: bytes | list[bytes] = b"",
    headers: dict[str, str] | list[tuple[str, str]] | None = None,
    **scope: Any,
) -> Answered:
    return asyncio.run(asking(app, method, path, body, headers, **scope))


async def asking(
    app: Any,
    method: str,
    path: str,
    body: bytes | list[bytes] = b"",
    headers: dict[str, str] | list[tuple[str, str]] | None = None,
    **scope: Any,
) -> Answered:
    """A body that is a list comes in that many pieces, without a Content-Length."""
    raw_path, _, query = path.partition("?")
    pairs = list(headers.items() if isinstance(headers, dict) else headers or [])
    pieces = [body] if isinstance(body, bytes) else list(body)
    if isinstance(body, bytes) and body:
        pairs.append(("content-length", str(len(body))))
    if body and not any(name.lower() == "content-type" for name, _ in pairs):
        pairs.append(("content-type", "application/json"))
    messages = [
        {"type": "http.request", "body": piece, "more_body": number < len(pieces) - 1}
        for number, piece in enumerate(pieces)
    ]
    sent: list[dict[str, Any]] = []

    async def receive() -> dict[str, Any]:
        if messages:
            return messages.pop(0)
        await asyncio.Event().wait()
        raise AssertionError("never")

    async def send(message: dict[str, Any]) -> None:
        sent.append(message)

    request = {
        "type": "http",
        "method": method,
        "path": raw_path,
        "raw_path": raw_path.encode(),
        "query_string": query.encode(),
        "headers": [
            (name.lower().encode("latin-1"), value.encode("latin-1")) for name, value in pairs
        ],
        "root_path": "",
    }
    await asyncio.wait_for(app(request | scope, receive, send), 10)
    start, *rest = sent
    assert start["type"] == "http.response.start"
    assert rest and not rest[-1].get("more_body", False), "the response never ends"
    return Answered(
        start["status"],
        [(name.decode("latin-1"), value.decode("latin-1")) for name, value in start["headers"]],
        b"".join(message.get("body", b"") for message in rest),
        len(rest),
        len(messages),
    )
