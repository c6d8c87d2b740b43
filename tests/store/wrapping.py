"""Engines around an engine: each is an Engine, and does one thing wrong."""

from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Sequence
from typing import Any

from keyhouse.clock import Clock
from keyhouse.engine import Batch, Capabilities, Change, Engine, Page, Row, Span, check_limits


class Wrapped:
    """Passes everything on."""

    def __init__(self, inner: Engine) -> None:
        self.inner = inner

    @property
    def capabilities(self) -> Capabilities:
        return self.inner.capabilities

    @property
    def clock(self) -> Clock:
        return self.inner.clock

    async def read(self, space: str, keys: Sequence[str]) -> list[Row | None]:
        return await self.inner.read(space, keys)

    async def scan(self, space: str, span: Span, *, limit: int, reverse: bool = False, keys_only: bool = False) -> Page:
        return await self.inner.scan(space, span, limit=limit, reverse=reverse, keys_only=keys_only)

    async def commit(self, space: str, batch: Batch) -> int | None:
        return await self.inner.commit(space, batch)

    def watch(self, space: str, span: Span, *, since: int | None = None) -> AsyncGenerator[Change, None]:
        return self.inner.watch(space, span, since=since)

    async def sweep(self, *, limit: int) -> int:
        return await self.inner.sweep(limit=limit)

    def spaces(self) -> AsyncIterator[str]:
        return self.inner.spaces()

    async def close(self) -> None:
        await self.inner.close()


class Killed(Exception):
    """As if the process had ended here."""


class Dying(Wrapped):
    """Dies at its `calls`-th read, scan or commit: before it is done or, when it is `late`, after."""

    def __init__(self, inner: Engine, calls: int, *, late: bool = False) -> None:
        super().__init__(inner)
        self._left = calls
        self._late = late

    async def _die(self, call: Awaitable[Any]) -> Any:
        self._left -= 1
        if self._left < 0 or (self._left == 0 and not self._late):
            close = getattr(call, "close", None)
            if close is not None:
                close()
            raise Killed
        answer = await call
        if self._left == 0:
            raise Killed
        return answer

    async def read(self, space: str, keys: Sequence[str]) -> list[Row | None]:
        rows: list[Row | None] = await self._die(self.inner.read(space, keys))
        return rows

    async def scan(self, space: str, span: Span, *, limit: int, reverse: bool = False, keys_only: bool = False) -> Page:
        page: Page = await self._die(self.inner.scan(space, span, limit=limit, reverse=reverse, keys_only=keys_only))
        return page

    async def commit(self, space: str, batch: Batch) -> int | None:
        revision: int | None = await self._die(self.inner.commit(space, batch))
        return revision


class Narrow(Wrapped):
    """Takes little in one commit, and holds its caller to it, as the store's own checks do."""

    def __init__(self, inner: Engine, rows: int, bytes: int) -> None:
        super().__init__(inner)
        self._capabilities = Capabilities(
            name="narrow", durable=False, shared=False, commit_rows_max=rows, commit_bytes_max=bytes
        )
        self.batches: list[Batch] = []

    @property
    def capabilities(self) -> Capabilities:
        return self._capabilities

    async def commit(self, space: str, batch: Batch) -> int | None:
        check_limits(batch, self._capabilities)
        self.batches.append(batch)
        return await self.inner.commit(space, batch)


class Meddling(Wrapped):
    """Calls `meddle` with the number of the scan, after each."""

    def __init__(self, inner: Engine, meddle: Callable[[int], Awaitable[None]]) -> None:
        super().__init__(inner)
        self._meddle = meddle
        self._scans = 0
        self.limits: list[int] = []

    async def scan(self, space: str, span: Span, *, limit: int, reverse: bool = False, keys_only: bool = False) -> Page:
        page = await self.inner.scan(space, span, limit=limit, reverse=reverse, keys_only=keys_only)
        self._scans += 1
        self.limits.append(limit)
        await self._meddle(self._scans)
        return page


class Faltering(Wrapped):
    """Raises these errors at its first commits, one for each; those that are `late`, after having committed."""

    def __init__(self, inner: Engine, *errors: Exception, late: bool = False) -> None:
        super().__init__(inner)
        self._errors = list(errors)
        self._late = late

    async def commit(self, space: str, batch: Batch) -> int | None:
        if self._errors:
            if self._late:
                await self.inner.commit(space, batch)
            raise self._errors.pop(0)
        return await self.inner.commit(space, batch)
