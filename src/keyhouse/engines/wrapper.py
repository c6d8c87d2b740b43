"""A wrapper that forwards every call to another engine: the base for metrics, tracing, fault
injection.
"""

from collections.abc import AsyncGenerator, AsyncIterator, Sequence

from msgspec.structs import replace

from keyhouse.clock import Clock
from keyhouse.engine import Batch, Capabilities, CaughtUp, Change, Engine, Page, Row, Span


class EngineWrapper:
    """Implements Engine. It offers no snapshots: they would bypass the wrapper."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self.capabilities: Capabilities = replace(engine.capabilities, snapshots=False)
        self.clock: Clock = engine.clock

    async def read(
        self, space: str, keys: Sequence[str], *, bytes_max: int | None = None
    ) -> list[Row | None]:
        return await self._engine.read(space, keys, bytes_max=bytes_max)

    async def scan(
        self,
        space: str,
        span: Span,
        *,
        limit: int,
        reverse: bool = False,
        keys_only: bool = False,
        bytes_max: int | None = None,
    ) -> Page:
        return await self._engine.scan(
            space,
            span,
            limit=limit,
            reverse=reverse,
            keys_only=keys_only,
            bytes_max=bytes_max,
        )

    async def commit(self, space: str, batch: Batch) -> int | None:
        return await self._engine.commit(space, batch)

    def watch(
        self, space: str, span: Span, *, since: int | None = None, caught_up: CaughtUp | None = None
    ) -> AsyncGenerator[Change, None]:
        return self._engine.watch(space, span, since=since, caught_up=caught_up)

    async def sweep(self, *, limit: int) -> int:
        return await self._engine.sweep(limit=limit)

    async def forget(self, space: str, *, last: str | None = None) -> None:
        await self._engine.forget(space, last=last)

    def spaces(self) -> AsyncIterator[str]:
        return self._engine.spaces()

    async def close(self) -> None:
        await self._engine.close()
