"""Scene activity: how often each scene was switched to, and when last.

A switch adds one to the row's count in a transaction that checks the row, so no count is lost.
Concurrent switches to one scene are committed together; each caller gets its own count.
"""

import asyncio
import heapq
from contextlib import aclosing

import msgspec

from keyhouse.schema import MILLISECONDS
from keyhouse.service.tenants import Tenants
from keyhouse.store import Transaction
from keyhouse_streamkit.schema import SCENE_ACTIVITY, SCENE_ACTIVITY_SECONDS, SceneActivity
from keyhouse_streamkit.tenants import Customer

SceneId = tuple[str, str]
"""A customer and the name of a scene."""


class Scenes:
    """Groups concurrent switches by scene: one worker task for each scene in use."""

    def __init__(self, tenants: Tenants[Customer]) -> None:
        self._tenants = tenants
        self._pending: dict[SceneId, list[asyncio.Future[SceneActivity]]] = {}
        self._workers: dict[SceneId, asyncio.Task[None]] = {}

    async def record(self, customer: str, name: str) -> SceneActivity:
        """Count a switch to the scene and return its activity."""
        SCENE_ACTIVITY.template.join((customer, name))  # an invalid name must not fail a group
        scene = (customer, name)
        future: asyncio.Future[SceneActivity] = asyncio.get_running_loop().create_future()
        self._pending.setdefault(scene, []).append(future)
        if scene not in self._workers:
            self._workers[scene] = asyncio.create_task(self._work(scene))
        return await future

    async def _work(self, scene: SceneId) -> None:
        """Commit pending switches until there are none. A caller that stops waiting does not lose
        its switch."""
        try:
            while pending := self._pending.pop(scene, None):
                try:
                    customer = self._tenants.get(scene[0])
                    last = await _add(customer, scene[1], len(pending))
                except Exception as error:  # raised to the callers
                    for future in pending:
                        if not future.done():
                            future.set_exception(error)
                    continue
                for earlier, future in enumerate(reversed(pending)):
                    if not future.done():
                        future.set_result(msgspec.structs.replace(last, count=last.count - earlier))
        finally:
            del self._workers[scene]


async def top_scenes(customer: Customer, limit: int) -> list[SceneActivity]:
    """Return the scenes with most switches; among equals, the most recently used first."""
    async with aclosing(customer.store.scan(SCENE_ACTIVITY, unreadable="skip")) as entries:
        scenes = [entry.record async for entry in entries]
    return heapq.nlargest(limit, scenes, key=lambda scene: (scene.count, scene.last_used))


async def _add(customer: Customer, name: str, by: int) -> SceneActivity:
    async def work(tx: Transaction) -> SceneActivity:
        before = await tx.get(SCENE_ACTIVITY, scene_name=name)
        activity = SceneActivity(
            scene_name=name,
            count=by if before is None else before.count + by,
            last_used=MILLISECONDS.format(tx.now),
        )
        expires = tx.now + SCENE_ACTIVITY_SECONDS * 1_000
        return (await tx.restore(SCENE_ACTIVITY, activity, expires=expires)).record

    return (await customer.transact(work))[0]
