"""The census: what each plugin keeps, counted now and then, for the metrics, the quotas and the operator's view."""

import asyncio
from collections.abc import Callable

from keyhouse.engine import Engine
from keyhouse.errors import KeyhouseError
from keyhouse.store import Store
from keyhouse.systems.rosey.figures import Figures
from keyhouse.systems.rosey.journal import Journal
from keyhouse.systems.rosey.quota import Account, Room, measure
from keyhouse.systems.rosey.schema import SCHEMAS

__all__ = ["Census"]


class Census:
    """`account_of` gives the account of a plugin that has one: what it counts is kept there, and carried along."""

    def __init__(
        self,
        engine: Engine,
        figures: Figures,
        journal: Journal,
        account_of: Callable[[str], Account | None],
    ) -> None:
        self._engine = engine
        self._figures = figures
        self._journal = journal
        self._account_of = account_of
        self._counted: dict[str, Room] = {}
        self.taken_at: int | None = None
        """When it was last taken, by the engine's clock."""

    async def run(self, seconds: float) -> None:
        """Now and then, for as long as it is run; never, where that is 0."""
        while seconds:
            await self.take()
            await asyncio.sleep(seconds)

    async def take(self) -> None:
        """Once. A failure is logged: the next time may be better."""
        counted: dict[str, Room] = {}
        try:
            async for name in self._engine.spaces():
                counted[name] = await self.count(name)
        except KeyhouseError as error:
            self._journal.census_failed(error)
            return
        self._counted = counted
        self.taken_at = self._engine.clock.now()
        self._figures.count(counted)

    async def count(self, plugin: str) -> Room:
        """What one plugin keeps now."""
        account = self._account_of(plugin)
        room = await (
            measure(Store(SCHEMAS[0], self._engine, plugin)) if account is None else account.count()
        )
        return Room(room.keys, room.bytes)

    def of(self, plugin: str) -> tuple[Room | None, int | None]:
        """What a plugin keeps, as far as is known without counting, and when that was so."""
        account = self._account_of(plugin)
        if account is not None and account.kept is not None:
            return account.kept, self._engine.clock.now()
        room = self._counted.get(plugin)
        return room, None if room is None else self.taken_at
