"""Requests of a remote store over NATS: `keyhouse.<schema>.<space>.<operation>`.

User and password are in the URL. Needs `nats-py`, of the extra `nats`.
"""

import asyncio
import secrets
from collections.abc import AsyncGenerator
from typing import Any, Final

import msgspec

from keyhouse.errors import (
    EngineError,
    KeyhouseError,
    LimitError,
    PreparingError,
    UnavailableError,
    UnknownOutcomeError,
    UsageError,
    WatchExpiredError,
)
from keyhouse.install import install_line
from keyhouse.remote_store.problems import error_of
from keyhouse.schema import Operation

try:
    from nats.errors import Error as NatsError
    from nats.errors import MaxPayloadError, NoRespondersError
    from nats.errors import TimeoutError as NatsTimeoutError

    from keyhouse.nats.client import NatsClient
    from keyhouse.nats.client_connection import connect_client
    from keyhouse.nats.embedded_users import with_embedded_user
    from keyhouse.nats.endpoint import ERROR_NUMBER_HEADER, PROBLEM_HEADER
except ModuleNotFoundError as error:
    raise ImportError(
        f"A remote store over NATS needs nats-py: {install_line('jetstream')}"
    ) from error

__all__ = ["NatsTransport"]

_REQUEST_SECONDS: Final = 30.0
_SILENCE_SECONDS: Final = 20.0
"""Time without any message of a watch, heartbeats included, after which it is started again."""

_RESTART_SECONDS: Final = 0.5

_READS: Final = (
    "get",
    "get_many",
    "list",
    "lookup",
    "watch",
    "keys",
    "record_count",
    "members",
    "sum_of_days",
)

_decode = msgspec.json.Decoder().decode
_encode = msgspec.json.Encoder().encode


class NatsTransport:
    """One connection to NATS, opened by the first request."""

    def __init__(self, url: str, schema: str, space: str | None) -> None:
        if space is None:
            raise UsageError("Over NATS, name the space: RemoteStore(SCHEMA, url, space=NAME).")
        self._url = url
        self._prefix = f"keyhouse.{schema}.{space}"
        self._changes = f"keyhouse.changes.{schema}.{space}"
        self._inbox = f"_INBOX_{space}"
        self._client: NatsClient | None = None
        self._connecting = asyncio.Lock()

    async def close(self) -> None:
        if self._client is not None:
            await self._client.close()

    async def call(self, operation: str, body: dict[str, Any]) -> Any:
        """Return the answer to a request; raise the store's error for any other."""
        lost = UnavailableError if operation in _READS else UnknownOutcomeError
        return await self._send(operation, _encode(_message(operation, body)), lost)

    async def call_own(self, operation: Operation[Any, Any], request: Any) -> Any:
        """Return the reply of an operation of one's own."""
        lost = UnavailableError if operation.access == "read" else UnknownOutcomeError
        return await self._send(operation.name, b"" if request is None else _encode(request), lost)

    async def _send(self, operation: str, data: bytes, lost: type[EngineError]) -> Any:
        client = await self._connected()
        try:
            reply = await client.request(
                f"{self._prefix}.{operation}", data, timeout=_REQUEST_SECONDS
            )
        except MaxPayloadError:
            raise LimitError(
                "The request is larger than NATS allows.", limit=client.max_payload
            ) from None
        except NoRespondersError:
            raise UnavailableError("No service of this schema is running on this NATS.") from None
        except (NatsTimeoutError, NatsError) as error:
            reason = str(error) or type(error).__name__
            raise lost("The service did not answer.", reason=reason) from None
        return _answer(reply.data, reply.headers or {}, lost)

    async def changes(
        self, body: dict[str, Any], since: int
    ) -> AsyncGenerator[tuple[str, dict[str, Any]], None]:
        """Iterate over the events of a watch, each once, and the revisions up to which they are
        complete (`caught_up`). It is started again after a lost message, behind the last commit
        that was received whole."""
        partial: set[tuple[str, int]] = set()  # events of the newest commit
        newest, is_started = since, False
        client = await self._connected()
        while True:
            subject = f"{self._changes}.{secrets.token_hex(8)}"
            messages = await client.subscribe(subject)
            try:
                await self.call("watch", {**body, "subject": subject, "since": since})
                number, is_started = 0, True
                while True:
                    message = _decode((await messages.next_msg(timeout=_SILENCE_SECONDS)).data)
                    number += 1
                    if message.pop("n") != number or "end" in message:
                        if message.get("end") == WatchExpiredError.code:
                            raise _expired(since)
                        break
                    if "heartbeat" in message:
                        if message["revision"] >= newest:
                            since = newest = message["revision"]
                            partial.clear()
                            yield "caught_up", {"revision": since}
                        continue
                    if message["revision"] != newest:
                        since, newest = newest, message["revision"]
                        partial.clear()
                        yield "caught_up", {"revision": since}
                    event = (message["key"], message["revision"])
                    if event not in partial:
                        partial.add(event)
                        yield message.pop("event"), message
            except (NatsError, msgspec.MsgspecError, KeyError):
                pass  # a lost message, or one that is not of the service
            except PreparingError:
                if not is_started:
                    raise
            except EngineError as error:
                if isinstance(error, WatchExpiredError):
                    raise
            finally:
                await messages.unsubscribe()
            await asyncio.sleep(_RESTART_SECONDS)

    async def _connected(self) -> NatsClient:
        async with self._connecting:
            if self._client is None:
                self._client = await connect_client(
                    with_embedded_user(self._url), inbox_prefix=self._inbox.encode()
                )
            return self._client


def _message(operation: str, body: dict[str, Any]) -> dict[str, Any]:
    """Return the members of a request: those of HTTP, by NATS's names."""
    message = {name: value for name, value in body.items() if value is not None and name != "op"}
    if operation in ("list", "keys"):
        message["fields"] = {name: str(each) for name, each in message.pop("filters").items()}
    if "expect" in body:
        message["expect"] = body["expect"]
    if operation == "patch" and "value" in body:
        message["value"] = body["value"]
    return message


def _answer(data: bytes, headers: dict[str, str], lost: type[EngineError]) -> Any:
    try:
        reply = _decode(data)
        is_reply = isinstance(reply, dict) and isinstance(reply.get("success"), bool)
    except msgspec.MsgspecError:
        is_reply = False
    if not is_reply:
        raise lost("Another program answered in place of the service.")
    if reply.pop("success"):
        return reply
    raise _error(reply, headers)


def _error(reply: dict[str, Any], headers: dict[str, str]) -> KeyhouseError:
    if PROBLEM_HEADER not in headers:  # the request did not reach an operation
        number = headers.get(ERROR_NUMBER_HEADER, str(KeyhouseError.status))
        return error_of(int(number), {"detail": reply.get("message")})
    problem = _decode(headers[PROBLEM_HEADER].encode())
    return error_of(problem["status"], problem)


def _expired(since: int) -> WatchExpiredError:
    return WatchExpiredError(
        "The changes since that revision are no longer available: scan again, then watch.",
        since=since,
    )
