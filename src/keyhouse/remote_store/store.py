"""The remote store: the verbs of a Store, as requests of a service.

    async with RemoteStore(BOX, "http://localhost:8080", token) as store:
        await store.put(RECIPE, Recipe(id="pie", title="Pie"))
        async for entry in store.scan(RECIPE, by=BY_TAG, tag="sweet"): …

The space is that of the token. Members that a record keeps private are written, and never read.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from types import TracebackType
from typing import Any, Never, Self, TypeVar

import msgspec

from keyhouse.advice.arguments import checked, unnamed_fields
from keyhouse.errors import (
    ContentionError,
    KeyhouseError,
    RevisionError,
    UnknownOutcomeError,
    UsageError,
)
from keyhouse.limits import TRANSACTION_ATTEMPTS_MAX
from keyhouse.remote_store.record_reads import RemoteRecordReads, Transport
from keyhouse.remote_store.transaction import RemoteTransaction, reject_others
from keyhouse.schema import (
    Counter,
    Log,
    Operation,
    Record,
    Schema,
)
from keyhouse.store import (
    ANY,
    Entry,
    Unset,
)

__all__ = ["RemoteStore", "open_transport"]

Q = TypeVar("Q")
T = TypeVar("T")
R = TypeVar("R")


class RemoteStore(RemoteRecordReads):
    """A schema that a service keeps, bound to the space of a token: the verbs of a `Store`.

    `url` is that of `keyhouse serve` (`http://host:8080`, `nats://host:4222`), with the path of the
    schema where a proxy has given it another one. `space` names the space over NATS, and for tokens
    with the scope `spaces`. `network` is an httpx transport in place of sockets, for tests.
    """

    @checked(UsageError)
    def __init__(
        self,
        schema: Schema,
        url: str,
        token: str | None = None,
        *,
        space: str | None = None,
        network: Any = None,
    ) -> None:
        transport = open_transport(schema, url, token, space, network=network)
        super().__init__(schema, transport, space)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connection."""
        await self._transport.close()

    # Writing

    async def put(
        self,
        record: Record[T],
        value: T,
        /,
        *positional: Never,
        ttl: float | None = None,
        expect: int | Unset | None = ANY,
        **fields: Any,
    ) -> Entry[T]:
        """Write a record and all that is derived from it; return the entry as stored."""
        if positional:
            raise unnamed_fields(record, positional)
        reject_others(record)
        value = self.addresses.with_ids(record, value, self.new_id)
        address = self.addresses.of_value(record, value, fields)
        owner = self.addresses.record(record)
        owner.json.encode(value)  # raises RecordError for a value of another type
        self._check_ttl(owner, value, ttl)
        plain = owner.json.plain(value)
        body = {**address.target, "value": plain, "ttl": ttl, **_expected(expect)}
        return self.addresses.entry(record, await self._transport.call("put", body), plain)

    def _check_ttl(self, owner: Record[Any], value: Any, ttl: float | None) -> None:
        """Raise as a Store does for a TTL that the record does not take."""
        if ttl is not None:
            owner.unbound.expires(value, None, ttl, self.now())

    async def put_many(self, record: Record[T], values: Iterable[T], /) -> list[Entry[T]]:
        """Write several records that hold all fields of their keys: all of them, or none."""
        reject_others(record)
        owner = self.addresses.record(record)
        values = [self.addresses.with_ids(record, value, self.new_id) for value in values]
        addresses = [self.addresses.of_value(record, value, {}) for value in values]
        plain = [owner.json.plain(value) for value in values]
        operations = [
            {"op": "put", **address.target, "value": each}
            for address, each in zip(addresses, plain, strict=True)
        ]
        if not operations:
            return []
        answer = await self._transport.call("batch", {"operations": operations})
        return [
            self.addresses.entry(record, item, local)
            for item, local in zip(answer["items"], plain, strict=True)
        ]

    async def update(
        self,
        record: Record[T],
        patch: Any,
        /,
        *positional: Never,
        ttl: float | None = None,
        expect: int | Unset | None = ANY,
        **fields: Any,
    ) -> Entry[T]:
        """Change some members of a stored record by a merge patch (RFC 7396), whatever others write
        meanwhile; return the entry as stored."""
        if positional:
            raise unnamed_fields(record, positional)
        reject_others(record)
        address = self.addresses.of(record, fields)
        self._check_ttl(self.addresses.record(record), None, ttl)
        body = {**address.target, "value": patch, **_expected(expect)}
        if ttl is None:
            return self.addresses.entry(record, await self._transport.call("patch", body))
        batch = {"operations": [{"op": "patch", **body, "ttl": ttl}]}
        [item] = (await self._transport.call("batch", batch))["items"]
        return self.addresses.entry(record, item)

    async def delete(
        self,
        record: Record[Any],
        /,
        *positional: Never,
        expect: int | Unset | None = ANY,
        **fields: Any,
    ) -> bool:
        """Delete a record, all that is derived from it and all that belongs to it; return whether
        it was there."""
        if positional:
            raise unnamed_fields(record, positional)
        reject_others(record)
        address = self.addresses.of(record, fields)
        if not isinstance(expect, Unset):
            await self._transport.call("delete", {**address.target, "expect": expect})
            return expect is not None
        for _ in range(TRANSACTION_ATTEMPTS_MAX):
            entry = await self.entry(record, **fields)
            body = {**address.target, "expect": None if entry is None else entry.revision}
            if entry is None:
                return False
            try:
                await self._transport.call("delete", body)
            except RevisionError:
                continue
            return True
        raise _contended()

    async def add(self, counter: Counter, by: int, /, *positional: Never, **fields: Any) -> None:
        """Add to a counter. No concurrent add is lost."""
        if positional:
            raise unnamed_fields(counter, positional)
        tx = RemoteTransaction(self)
        await tx.add(counter, by, **fields)
        [operation] = tx.operations()
        if len(operation["fields"]) == len(self.addresses.names(counter)):
            await self._transport.call("add", operation)
        else:
            await self._transport.call("batch", {"operations": [operation]})

    async def append(self, log: Log[T], event: T, /, *positional: Never, **fields: Any) -> Entry[T]:
        """Append an event to a log, and fold it; return the entry as stored."""
        if positional:
            raise unnamed_fields(log, positional)
        owner = self.addresses.record(log)
        plain = owner.json.plain(event)
        body = {"log": owner.name, "fields": fields, "value": _without_order(owner, plain)}
        return self.addresses.entry(log, await self._transport.call("append", body), plain)

    async def clear(self, *, on_progress: Callable[[int], None] | None = None) -> int:
        """Delete all records of the space, and every row derived from them; return their number.
        See `Store.clear`."""
        if on_progress is not None and not callable(on_progress):  # before anything is deleted
            raise UsageError("Progress is reported to a function.", on_progress=on_progress)
        deleted, more = 0, True
        while more:
            answer = await self._transport.call("clear", {})
            deleted, more = deleted + answer["deleted"], answer["more"]
            if on_progress is not None:
                on_progress(deleted)
        return deleted

    async def forget(self, **named: Any) -> int:
        """Raise UsageError: a space is erased where it is stored."""
        raise UsageError(
            "A service does not erase a space without a trace: use `Store.forget` where it is"
            " stored, or `clear`."
        )

    async def transact(
        self, work: Callable[[RemoteTransaction], Awaitable[R]], *, batch_id: str | None = None
    ) -> R:
        """Run `work` in a transaction and commit it; run it again from the start when it loses a
        race. See `Store.transact`."""
        if not callable(work):
            raise UsageError(
                "A transaction runs an async function of one argument: pass the function itself,"
                " and do not call it.",
                given=work,
            )
        for _ in range(TRANSACTION_ATTEMPTS_MAX):
            tx = RemoteTransaction(self)
            started = work(tx)
            if not hasattr(started, "__await__"):
                raise UsageError(
                    "A transaction runs an async function: write `async def work(tx): …`, or"
                    " return what the verb of `tx` returns.",
                    work=getattr(work, "__qualname__", repr(work)),
                    returned=type(started).__name__,
                )
            result = await started
            if await self._commit(tx, batch_id):
                return result
        raise _contended()

    async def call(self, operation: Operation[Q, R], request: Q | None = None, /) -> R:
        """Run an operation of one's own in the service; return its reply. An error of a class that
        the operation's module knows is raised as that class."""
        Operation.check_call(operation, request)
        try:
            answer = await self._transport.call_own(operation, request)
        except KeyhouseError as error:
            raise operation.raised(error) from None
        if operation.reply is None:
            return None  # type: ignore[return-value]  # R is None
        try:
            return msgspec.convert(answer, operation.reply)  # type: ignore[return-value]  # R
        except msgspec.ValidationError as error:
            raise UnknownOutcomeError(
                "The reply is not of the type that the operation declares.", reason=str(error)
            ) from None

    @asynccontextmanager
    async def transaction(self, *, batch_id: str | None = None) -> AsyncIterator[RemoteTransaction]:
        """One transaction, committed at the end of the block. Raises ContentionError if it lost a
        race (`transact` retries)."""
        tx = RemoteTransaction(self)
        yield tx
        if not await self._commit(tx, batch_id):
            raise ContentionError(
                "Something read in the transaction changed before it committed: run it again."
            )

    async def _commit(self, tx: RemoteTransaction, batch_id: str | None) -> bool:
        """Apply the batch of a transaction; return False if it lost a race."""
        if operations := tx.operations():
            body: dict[str, Any] = {"operations": operations}
            if batch_id is not None:
                body["idempotency_key"] = batch_id
            try:
                await self._transport.call("batch", body)
            except RevisionError:
                return False
        return True


def open_transport(
    schema: Schema,
    url: str,
    token: str | None,
    space: str | None,
    *,
    network: Any = None,
    raise_denied: bool = False,
) -> Transport:
    """Return what carries requests to the service at a URL. Sends nothing yet. `raise_denied` is
    for commands over NATS: they raise AccessError at once where the server denies a request."""
    scheme = url.partition("://")[0]
    if scheme in ("http", "https"):
        from keyhouse.remote_store.http_transport import HttpTransport

        return HttpTransport(url, schema.name, token, space, network)
    if scheme in ("nats", "tls"):
        from keyhouse.remote_store.nats_transport import NatsTransport

        name = space or schema.space.name
        return NatsTransport(url, schema.name, name, raise_denied=raise_denied)
    raise UsageError("A service is at a URL such as http://localhost:8080.", url=url)


def _expected(expect: int | Unset | None) -> dict[str, Any]:
    return {} if isinstance(expect, Unset) else {"expect": expect}


def _without_order(log: Record[Any], plain: Any) -> Any:
    """Return an event without its position, which the service assigns."""
    if isinstance(log, Log) and log.order in log.attributes and isinstance(plain, dict):
        return {name: value for name, value in plain.items() if name != log.json.member(log.order)}
    return plain


def _contended() -> ContentionError:
    return ContentionError(
        "The transaction lost every race: too many writers of the same rows. Try again later.",
        attempts=TRANSACTION_ATTEMPTS_MAX,
    )
