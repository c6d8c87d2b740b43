"""Scene activity: how often each scene was switched to, and when last.

A switch adds one to what the row says, in a transaction that checks the row, so no count is lost whoever else counts.
Switches to one scene that come at the same time are committed together: each is counted, and each is told its own count.
"""

import asyncio
import heapq

import msgspec

from keyhouse.schema import MILLISECONDS
from keyhouse.store import Transaction
from keyhouse.systems.streamkit.customers import Customer, Customers
from keyhouse.systems.streamkit.quota import NOTHING, Room, size_of
from keyhouse.systems.streamkit.schema import SCENE_ACTIVITY, SCENE_ACTIVITY_SECONDS, SceneActivity
from keyhouse.systems.streamkit.versions import SCENES

Scene = tuple[str, str]
"""A customer and the name of a scene."""


class Scenes:
    def __init__(self, customers: Customers) -> None:
        self._customers = customers
        self._waiting: dict[Scene, list[asyncio.Future[SceneActivity]]] = {}
        self._working: dict[Scene, asyncio.Task[None]] = {}

    async def record(self, customer: str, name: str) -> SceneActivity:
        """Count a switch to the scene; what its row says then."""
        SCENE_ACTIVITY.template.join((customer, name))  # refused here, it takes nobody else along
        scene = (customer, name)
        future: asyncio.Future[SceneActivity] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(scene, []).append(future)
        if scene not in self._working:
            self._working[scene] = asyncio.create_task(self._work(scene))
        return await future

    async def top(self, customer: str, limit: int) -> list[SceneActivity]:
        """The scenes that were switched to most often; among equals, the ones used last."""
        rows = [row async for _, row in SCENES.rows(self._customers.engine, customer)]
        scenes = [SCENE_ACTIVITY.decode(row.value, row.key) for row in rows]
        return heapq.nlargest(limit, scenes, key=lambda scene: (scene.count, scene.last_used))

    async def _work(self, scene: Scene) -> None:
        """Commit what waits, and what came meanwhile, until nobody waits. Nobody's switch is lost by who stops waiting."""
        try:
            while waiting := self._waiting.pop(scene, None):
                try:
                    last = await self._add(self._customers.get(scene[0]), scene[1], len(waiting))
                except Exception as error:  # it goes to who asked
                    _refuse(waiting, error)
                    continue
                for earlier, future in enumerate(reversed(waiting)):
                    if not future.done():
                        future.set_result(msgspec.structs.replace(last, count=last.count - earlier))
        finally:
            del self._working[scene]

    async def _add(self, customer: Customer, name: str, by: int) -> SceneActivity:
        version = self._customers.keys

        async def counted(room: Room) -> SceneActivity:
            async def work(tx: Transaction) -> SceneActivity:
                before = await SCENES.entry(tx, name)
                count = by if before is None else before.record.count + by
                value = SceneActivity(
                    scene_name=name, count=count, last_used=MILLISECONDS.format(tx.now)
                )
                expires = tx.now + SCENE_ACTIVITY_SECONDS * 1_000
                entry = await SCENES.restore(tx, value, before, version, expires)
                written = await tx.row(entry.key)
                assert written is not None
                room.reserve(size_of(entry.key, written[0]) if before is None else NOTHING)
                return entry.record

            return await customer.store.transact(work)

        return await customer.quota.within(counted)


def _refuse(waiting: list[asyncio.Future[SceneActivity]], error: Exception) -> None:
    for future in waiting:
        if not future.done():
            future.set_exception(error)
