"""The NATS side of typed clients, and of commands that talk to a service.

A request goes to `<prefix>.<operation>` with a JSON object. The reply has `success`, and either the
result's members or `error_code` and `message`.
"""

import asyncio
import json
import secrets
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

import msgspec
from nats.aio.client import Client
from nats.errors import Error as NatsError
from nats.errors import MaxPayloadError, NoRespondersError
from nats.errors import TimeoutError as NatsTimeoutError

from keyhouse.errors import AccessError, EngineError, UnavailableError, UsageError
from keyhouse.nats.client import NatsClient
from keyhouse.nats.embedded_users import with_embedded_user
from keyhouse.nats.errors import PermissionDeniedError, not_accepted, reported_cause
from keyhouse.service.errors import ClientError, ErrorMap

__all__ = ["NatsServiceClient", "connect_to_service", "translated"]

INVALID: Final = "VALIDATION_ERROR"
TOO_LARGE: Final = "VALUE_TOO_LARGE"
NO_ANSWER: Final = "NO_ANSWER"

_SILENCE_SECONDS: Final = 20.0
"""Time without any message, heartbeats included, after which a watch is started again."""

_PAGE_ITEMS: Final = 1_000
_CONNECT_SECONDS: Final = 10

_EXPIRED: Final = "The changes since that revision are no longer available."
_ENDED: Final = "The service could not continue the watch; see its log."

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder().decode


class NatsServiceClient:
    """A client of one tenant of a service, on a connection that its caller has opened.

    `errors` has classes for the service's codes, and for NO_ANSWER, VALUE_TOO_LARGE and
    VALIDATION_ERROR, which are also raised here. Nothing is retried. `timeout` is in seconds, per
    reply. `changes_prefix` is where changes may be published: see `keyhouse.service.nats_watches`.
    """

    def __init__(
        self,
        connection: Client,
        errors: ErrorMap[Any],
        *,
        service: str,
        prefix: str,
        changes_prefix: str,
        timeout: float,
    ) -> None:
        self._connection = connection
        self._errors = errors
        self._service = service
        self._prefix = prefix
        self._changes_prefix = changes_prefix
        self._timeout = timeout

    async def request(self, operation: str, body: Mapping[str, Any]) -> dict[str, Any]:
        """Return a successful reply; raise the client's error for any other."""
        try:
            message = await self._connection.request(
                f"{self._prefix}.{operation}", self._encoded(body), timeout=self._timeout
            )
        except MaxPayloadError:
            most = self._connection.max_payload
            raise self._error(
                f"The request is larger than the {most} bytes of NATS.", TOO_LARGE
            ) from None
        except NoRespondersError:
            raise self._error(f"No {self._service} is running on this NATS.", NO_ANSWER) from None
        except NatsTimeoutError:
            raise self._error(f"No reply within {self._timeout:g} s.", NO_ANSWER) from None
        reply = _reply(message.data)
        if reply is None:
            raise self._error(
                f"Another program answered in place of the {self._service}: the outcome is unknown."
                " Check who else subscribes to its subjects.",
                NO_ANSWER,
            )
        if reply["success"]:
            return reply
        raise self._error(reply["message"], reply["error_code"])

    async def items_of(
        self, operation: str, member: str, body: Mapping[str, Any]
    ) -> AsyncIterator[Any]:
        """Iterate over the items of all pages of an operation that takes and returns a cursor."""
        cursor: str | None = None
        while True:
            page = await self.request(operation, {**body, "limit": _PAGE_ITEMS, "cursor": cursor})
            for item in page[member]:
                yield item
            if (cursor := page.get("cursor")) is None:
                return

    async def changes(
        self, prefix: str, since: int | None, started: Callable[[int], None] | None
    ) -> AsyncGenerator[dict[str, Any], None]:
        """Iterate over the changes of keys with this prefix by the operation `watch`, without end.

        The watch restarts by itself when the service restarts or a message is lost; a change may
        then come twice, and none is missed. Raises the error with which the service stopped the
        watch. `started` is called once, with the revision at which the watch starts.
        """
        while True:
            subject = f"{self._changes_prefix}.{secrets.token_hex(8)}"
            messages = await self._connection.subscribe(subject)
            try:
                reply = await self.request(
                    "watch", {"subject": subject, "prefix": prefix, "since": since}
                )
                since = int(reply["revision"])
                if started is not None:
                    started(since)
                    started = None
                number = 0
                while True:
                    try:
                        message = await messages.next_msg(timeout=_SILENCE_SECONDS)
                    except NatsTimeoutError:
                        break
                    change = _change(message.data)
                    if change is None:
                        break
                    number += 1
                    code = change.get("end")
                    if isinstance(code, str) and code in self._errors.codes:
                        raise self._error(_ENDED if code != "WATCH_EXPIRED" else _EXPIRED, code)
                    if change["n"] != number or "end" in change:
                        since = change.get("since", since)
                        break
                    if "heartbeat" in change:
                        since = change["revision"]
                    else:
                        yield change
            except self._errors.find(code=NO_ANSWER):
                await asyncio.sleep(0.5)
            finally:
                await messages.unsubscribe()

    def _encoded(self, body: Mapping[str, Any]) -> bytes:
        """Encode as JSON. NaN and infinity, which msgspec would write as `null`, are rejected."""
        try:
            data = _encode(body)
        except UnicodeEncodeError:
            raise self._error(
                "Text holds a lone surrogate, which UTF-8 cannot encode.", INVALID
            ) from None
        if b"null" in data:
            try:
                json.dumps(msgspec.to_builtins(body, str_keys=True), allow_nan=False)
            except ValueError:
                raise self._error("A number in the value is not finite.", INVALID) from None
        return data

    def _error(self, message: str, code: str) -> ClientError:
        error: ClientError = self._errors.find(code=code)(message, code=code)
        return error


def _reply(data: bytes) -> dict[str, Any] | None:
    """Return a service's reply; None for anything else, such as the acknowledgement of a stream
    that records the subject."""
    reply = _object(data)
    if reply is None:
        return None
    if reply.get("success") is True:
        return reply
    texts = (reply.get("error_code"), reply.get("message"))
    is_error = reply.get("success") is False and all(isinstance(text, str) for text in texts)
    return reply if is_error else None


def _change(data: bytes) -> dict[str, Any] | None:
    """Return a message of a watch; None for anything else."""
    change = _object(data)
    return change if change is not None and type(change.get("n")) is int else None


def _object(data: bytes) -> dict[str, Any] | None:
    try:
        decoded = _decode(data)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return None
    return decoded if isinstance(decoded, dict) else None


async def connect_to_service(url: str, system: str, kind: str, tenant: str) -> NatsClient:
    """Connect a command to NATS at `url`, which includes user and password if NATS requires them.

    The user must be allowed to receive replies in the tenant's inbox. A lost connection is not
    restored. `kind` is the system's word for a tenant.
    """
    if not url.startswith(("nats://", "tls://")):
        raise UsageError("This service is reached over NATS: --service nats://host:4222.")
    cause: Exception | None = None

    async def note(error: Exception) -> None:
        nonlocal cause
        cause = reported_cause(cause, error)

    connection = NatsClient(raise_denied=True)
    try:
        async with asyncio.timeout(_CONNECT_SECONDS):
            await connection.connect(
                with_embedded_user(url).split(","),
                connect_timeout=_CONNECT_SECONDS,
                allow_reconnect=False,
                max_reconnect_attempts=1,  # with 0, nats-py retries without end
                reconnect_time_wait=0,
                error_cb=note,
                inbox_prefix=f"_INBOX_{tenant}".encode(),
            )
            with translated(system, kind, tenant):
                await connection.check_inbox()
    except (NatsError, OSError) as error:  # TimeoutError is an OSError
        cause = cause or error
        await connection.close()  # which may note another error
        raise UnavailableError(
            not_accepted(cause),
            reason=str(cause) or type(cause).__name__,
        ) from None
    except BaseException:
        await connection.close()
        raise
    return connection


@contextmanager
def translated(
    system: str, kind: str, tenant: str, unanswered: type[EngineError] = UnavailableError
) -> Iterator[None]:
    """Raise Keyhouse's own errors. `unanswered` is raised if there is no reply."""
    try:
        yield
    except ClientError as error:
        if error.code == NO_ANSWER:
            raise unanswered("The service did not reply.", reason=error.message) from None
        raise error.to_local() from None
    except PermissionDeniedError as error:
        raise AccessError(
            f"NATS does not let this user act for that {kind}: name the {kind}'s own user in the "
            f"URL, nats://{kind.upper()}:PASSWORD@host:4222. `keyhouse {system} acl` prints the "
            "permissions.",
            **{kind: tenant},
            reason=str(error),
        ) from None
    except NatsError as error:
        reason = str(error) or type(error).__name__
        raise unanswered("The connection to NATS was lost.", reason=reason) from None
