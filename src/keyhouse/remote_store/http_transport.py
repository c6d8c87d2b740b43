"""Requests of a remote store over HTTP. Needs `httpx`, of the extra `client`."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from typing import Any, Final
from urllib.parse import quote

import msgspec

from keyhouse.advice.http_arguments import authorization, service_url
from keyhouse.advice.install import install_line
from keyhouse.errors import (
    EngineError,
    KeyhouseError,
    NotFoundError,
    PreparingError,
    UnavailableError,
    UnknownOutcomeError,
    UsageError,
    WatchExpiredError,
)
from keyhouse.operations.table import requested_kind, requested_verb
from keyhouse.operations.verb import NO_BODY, VALUE, Verb
from keyhouse.remote_store.problems import error_of, shown_url
from keyhouse.schema import Operation

try:
    import httpx
except ModuleNotFoundError as error:
    raise ImportError(f"A remote store over HTTP needs httpx: {install_line('client')}") from (
        error
    )

__all__ = ["HttpTransport"]

_HEARTBEAT_SECONDS_MAX: Final = 45.0
"""Time without a byte of a watch, heartbeats included, after which it is opened again."""

_RECONNECT_SECONDS: Final = 0.5
_CAUGHT_UP: Final = ": caught-up "
_decode = msgspec.json.Decoder().decode
_encode = msgspec.json.Encoder().encode


class HttpTransport:
    """One service, and the token that every request carries."""

    def __init__(
        self,
        url: str,
        mount: str,
        token: str | None,
        space: str | None,
        network: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        url = service_url(url, f"/{mount}")
        if space is not None and not (space.isascii() and space.isprintable()):
            raise UsageError("A header names the space: use only ASCII.", space=space)
        headers = {} if token is None else {"Authorization": authorization(token)}
        if space is not None:
            headers["Keyhouse-Space"] = space
        self._shown_url = shown_url(url)
        self._http = httpx.AsyncClient(
            base_url=url, headers=headers, timeout=30.0, transport=network
        )

    async def close(self) -> None:
        await self._http.aclose()

    async def call(self, operation: str, body: dict[str, Any]) -> Any:
        """Return the answer to a request; raise the store's error for any other."""
        verb = requested_verb(operation, body)
        lost = UnavailableError if verb.access == "read" else UnknownOutcomeError
        return await self._send(verb.method, *_request(verb, body), lost)

    async def call_own(self, operation: Operation[Any, Any], request: Any) -> Any:
        """Return the reply of an operation of one's own."""
        lost = UnavailableError if operation.access == "read" else UnknownOutcomeError
        options = {} if request is None else _json(request)
        return await self._send("POST", f"/operations/{operation.name}", options, lost)

    async def _send(
        self, method: str, path: str, options: dict[str, Any], lost: type[EngineError]
    ) -> Any:
        try:
            response = await self._http.request(method, path, **options)
        except (httpx.ConnectError, httpx.ConnectTimeout, httpx.UnsupportedProtocol) as error:
            raise UnavailableError(
                "The service cannot be reached.", url=self._shown_url, reason=str(error)
            ) from None
        except httpx.HTTPError as error:
            reason = str(error) or type(error).__name__
            raise lost("The service did not answer.", reason=reason) from None
        if response.is_success:
            return _parsed(response.content, lost) if response.content else None
        raise _error(response.status_code, response.content)

    async def changes(
        self, body: dict[str, Any], since: int
    ) -> AsyncGenerator[tuple[str, dict[str, Any]], None]:
        """Iterate over the events of a watch, each once, and the revisions up to which they are
        complete (`caught_up`). A lost connection is opened again, after the last commit that was
        received whole."""
        partial: set[tuple[str, int]] = set()  # events of a commit whose end was not received
        is_started = False
        while True:
            try:
                async with aclosing(self._events(body, since)) as events:
                    async for name, data, id in events:
                        is_started = True
                        if name == "caught_up":
                            since = max(since, int(data))
                            partial.clear()
                            yield name, {"revision": since}
                            continue
                        if name == "expired":
                            raise WatchExpiredError(
                                "The changes since that revision are no longer available: scan"
                                " again, then watch.",
                                since=since,
                            )
                        item = _decode(data)
                        event = (item["key"], item["revision"])
                        is_new = event not in partial
                        partial.add(event)
                        if id.isdigit():
                            since = int(id)
                            partial.clear()
                        if is_new:
                            yield name, item
                        if id.isdigit():
                            yield "caught_up", {"revision": since}
            except httpx.HTTPError:
                pass
            except PreparingError:
                if not is_started:
                    raise
            except EngineError as error:
                if isinstance(error, WatchExpiredError):
                    raise
            await asyncio.sleep(_RECONNECT_SECONDS)

    async def _events(
        self, body: dict[str, Any], since: int
    ) -> AsyncGenerator[tuple[str, str, str], None]:
        name = body[requested_kind(body) or "record"]
        query = {"record": name, **_texts(body["fields"]), "since": str(since)}
        timeout = httpx.Timeout(30.0, read=_HEARTBEAT_SECONDS_MAX)
        async with self._http.stream("GET", "/watch", params=query, timeout=timeout) as response:
            if not response.is_success:
                raise _error(response.status_code, await response.aread())
            async for event in _parse_events(response.aiter_lines()):
                yield event


async def _parse_events(lines: AsyncIterator[str]) -> AsyncIterator[tuple[str, str, str]]:
    """Yield the name, data and id of each Server-Sent Event."""
    event: dict[str, str] = {}
    async for line in lines:
        if line.startswith(_CAUGHT_UP):
            yield "caught_up", line.removeprefix(_CAUGHT_UP), ""
        elif line:
            field, _, value = line.partition(":")
            event[field] = value.removeprefix(" ")
        elif "event" in event or "data" in event:
            yield event.get("event", "message"), event.get("data", ""), event.get("id", "")
            event = {}


def _request(verb: Verb, body: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """Return the path and options of a request."""
    kind = requested_kind(body)
    fields = _texts(body.get("filters" if verb.key == "filters" else "fields", {}))
    params = {
        name: str(body[name])
        for name in ("by", *(each for each, _, _ in verb.query))
        if body.get(name) is not None and name not in verb.body_members
    }
    path = verb.path
    if kind is not None:
        path = path.replace("{kind}", kind).replace("{name}", body[kind])
    if verb.key == "address":
        parts = [f"/{quote(text, safe='')}" for text in fields.values()]
        path = path.replace("/{address}", "".join(parts))
    else:
        params |= fields
    options: dict[str, Any] = {"headers": {}}
    if verb.body is VALUE:
        options = _json(body["value"], verb.media_types[0])
    elif verb.body is not NO_BODY:
        options = _json({name: body[name] for name in verb.body_members if name in body})
    if verb.is_conditional:
        options["headers"] |= _conditions(body)
    if verb.is_idempotent and "idempotency_key" in body:
        options["headers"]["Idempotency-Key"] = body["idempotency_key"]
    return path, {**options, "params": params} if params else options


def _json(value: Any, media_type: str = "application/json") -> dict[str, Any]:
    return {"content": _encode(value), "headers": {"Content-Type": media_type}}


def _conditions(body: dict[str, Any]) -> dict[str, str]:
    if "expect" not in body:
        return {}
    if body["expect"] is None:
        return {"If-None-Match": "*"}
    return {"If-Match": f'"{body["expect"]}"'}


def _texts(fields: dict[str, Any]) -> dict[str, str]:
    return {name: "null" if value is None else str(value) for name, value in fields.items()}


def _parsed(content: bytes, lost: type[EngineError]) -> Any:
    try:
        return _decode(content)
    except msgspec.MsgspecError:
        raise lost("The response is not from this service.") from None


def _error(status: int, content: bytes) -> KeyhouseError:
    try:
        problem = _decode(content)
    except msgspec.MsgspecError:
        problem = None
        if status == NotFoundError.status:
            return UnavailableError("There is no such service at this URL.", status=status)
    return error_of(status, problem)
