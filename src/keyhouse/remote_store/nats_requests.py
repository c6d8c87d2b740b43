"""Requests and watches of one tenant of a service over NATS, for remote stores and typed clients.

A request goes to `<prefix>.<operation>` with a JSON object. The reply has `success`, and either the
result's members or `error_code` and `message`. Needs `nats-py`, of the extra `nats`.
"""

import asyncio
import secrets
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

import msgspec
from nats.aio.client import Client
from nats.errors import Error as NatsError
from nats.errors import MaxPayloadError, NoRespondersError

from keyhouse.errors import (
    AccessError,
    EngineError,
    KeyhouseError,
    LimitError,
    PreparingError,
    UnavailableError,
    WatchExpiredError,
)
from keyhouse.nats.client import NatsClient
from keyhouse.nats.client_connection import connect_client
from keyhouse.nats.embedded_users import with_embedded_user
from keyhouse.nats.endpoint import ERROR_NUMBER_HEADER, PROBLEM_HEADER
from keyhouse.nats.errors import PermissionDeniedError
from keyhouse.remote_store.problems import error_of

__all__ = ["NatsRequests", "NatsTenant", "connect_tenant"]

_SILENCE_SECONDS: Final = 20.0
"""Time without any message of a watch, heartbeats included, after which it is started again."""

_RESTART_SECONDS: Final = 0.5

_decode = msgspec.json.Decoder(dict[str, Any]).decode
_encode = msgspec.json.Encoder().encode


class NatsTenant(msgspec.Struct, frozen=True):
    """A tenant of a service: its subjects, and the words of errors.

    Its changes may be published below `changes`. `kind` is the service's word for a tenant, and
    `acl` the command that prints the permissions of one.
    """

    name: str
    prefix: str
    changes: str
    service: str = "service of this schema"
    kind: str = "space"
    acl: str = "keyhouse acl"


async def connect_tenant(url: str, tenant: NatsTenant, **options: Any) -> NatsClient:
    """Connect to NATS at `url`, which includes user and password if NATS requires them. The user
    must be allowed to receive replies in the tenant's inbox. See `connect_client`."""
    inbox = f"_INBOX_{tenant.name}".encode()
    with _connection_errors(tenant):
        return await connect_client(with_embedded_user(url), inbox_prefix=inbox, **options)


class NatsRequests:
    """The requests of one tenant, on the connection that `connect` returns. `timeout` is in
    seconds, per reply. Nothing but a watch is retried."""

    def __init__(
        self, connect: Callable[[], Awaitable[Client]], tenant: NatsTenant, timeout: float
    ) -> None:
        self._connect = connect
        self._tenant = tenant
        self.timeout = timeout

    async def send(self, operation: str, data: bytes, lost: type[EngineError]) -> dict[str, Any]:
        """Return the members of a successful reply; raise the service's error for any other, and
        `lost` if there is none."""
        client = await self._connect()
        subject = f"{self._tenant.prefix}.{operation}"
        try:
            reply = await client.request(subject, data, timeout=self.timeout)
        except PermissionDeniedError as error:
            raise _denied(self._tenant, error) from None
        except MaxPayloadError:
            raise LimitError(
                "The request is larger than NATS allows.", limit=client.max_payload
            ) from None
        except NoRespondersError:
            raise UnavailableError(f"No {self._tenant.service} is running on this NATS.") from None
        except NatsError as error:
            reason = str(error) or type(error).__name__
            raise lost("The service did not answer.", reason=reason) from None
        return _members(reply.data, reply.headers or {}, lost)

    async def watch(
        self,
        body: Mapping[str, Any],
        since: int | None,
        started: Callable[[int], None] | None = None,
    ) -> AsyncGenerator[dict[str, Any] | int, None]:
        """Iterate over the changes of a watch, each once, and the revisions up to which they are
        complete. `started` is called once, with the revision at which it starts.

        After a lost message, or if the service or its engine fails, it is started again behind the
        last commit that was received whole. Raises the error with which the service stopped it.
        """
        partial: set[tuple[str, int]] = set()  # changes of the newest commit
        newest, is_started = since or 0, False
        client = await self._connect()
        while True:
            subject = f"{self._tenant.changes}.{secrets.token_hex(8)}"
            with _connection_errors(self._tenant):
                messages = await client.subscribe(subject)
            try:
                request = _encode({**body, "subject": subject, "since": since})
                reply = await self.send("watch", request, UnavailableError)
                if not is_started:
                    since = newest = int(reply["revision"])
                    is_started = True
                    if started is not None:
                        started(since)
                number = 0
                while True:
                    message = _decode((await messages.next_msg(timeout=_SILENCE_SECONDS)).data)
                    number += 1
                    if message.pop("n") != number or "end" in message:
                        _check_end(message.get("end"), since)
                        break
                    if "heartbeat" in message:
                        if message["revision"] >= newest:
                            since = newest = message["revision"]
                            partial.clear()
                            yield newest
                        continue
                    if message["revision"] != newest:
                        since, newest = newest, message["revision"]
                        partial.clear()
                        yield since
                    change = (message["key"], message["revision"])
                    if change not in partial:
                        partial.add(change)
                        yield message
            except (NatsError, msgspec.MsgspecError, UnicodeDecodeError, KeyError):
                pass  # a lost message, or one that is not of the service
            except PreparingError:
                if not is_started:
                    raise
            except EngineError as error:
                if isinstance(error, WatchExpiredError):
                    raise
            finally:
                if not client.is_closed:
                    await messages.unsubscribe()
            await asyncio.sleep(_RESTART_SECONDS)


@contextmanager
def _connection_errors(tenant: NatsTenant) -> Iterator[None]:
    try:
        yield
    except PermissionDeniedError as error:
        raise _denied(tenant, error) from None
    except NatsError as error:
        reason = str(error) or type(error).__name__
        raise UnavailableError("The connection to NATS is closed.", reason=reason) from None


def _denied(tenant: NatsTenant, error: PermissionDeniedError) -> AccessError:
    return AccessError(
        f"NATS does not let this user act for that {tenant.kind}: name the {tenant.kind}'s own "
        f"user in the URL, nats://{tenant.kind.upper()}:PASSWORD@host:4222. `{tenant.acl}` prints "
        "the permissions.",
        **{tenant.kind: tenant.name},
        reason=str(error),
    )


def _members(data: bytes, headers: dict[str, str], lost: type[EngineError]) -> dict[str, Any]:
    """Return the members of a reply. Another program may answer instead, such as a stream that
    records the subject and acknowledges it."""
    try:
        reply = _decode(data)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        reply = {}
    has_succeeded = reply.pop("success", None)
    if has_succeeded is True:
        return reply
    if has_succeeded is not False or not isinstance(reply.get("error_code"), str):
        raise lost(
            "Another program answered in place of the service. Check who else subscribes to its"
            " subjects."
        )
    problem = {"detail": reply.get("message"), "code": reply["error_code"]}
    if PROBLEM_HEADER in headers:
        problem |= _decode(headers[PROBLEM_HEADER].encode())
    number = headers.get(ERROR_NUMBER_HEADER, str(KeyhouseError.status))
    raise error_of(int(problem.get("status", number)), problem)


def _check_end(reason: str | None, since: int | None) -> None:
    """Raise the error with which the service stopped a watch. It stops one for other reasons too,
    after which another process may continue it."""
    if reason == WatchExpiredError.code:
        raise WatchExpiredError(
            "The changes since that revision are no longer available: scan again, then watch.",
            since=since,
        )
    if reason is not None and reason.isupper():
        detail = "The service could not continue the watch; see its log."
        raise error_of(EngineError.status, {"code": reason, "detail": detail})
