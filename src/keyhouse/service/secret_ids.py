"""The secrets of a service, as its processes compare them: a token of one must be valid in all.

Each process writes the ids of its secrets, not the secrets, into the space `keyhouse-service` of
the system's engine, in rows that expire after a few of the intervals at which they are written
again. At its start, and at each interval, it reads the ids of the others, and logs those that
differ. An id is an HMAC: it tells two keys apart, and does not help to find one.
"""

import asyncio
import hmac
from collections.abc import Mapping
from hashlib import sha256
from typing import Final

import msgspec
import structlog

from keyhouse.engine import Engine
from keyhouse.errors import KeyhouseError
from keyhouse.schema import Record, Schema, Space, per_write
from keyhouse.schema.space import SERVICE_SPACE
from keyhouse.service.worker import ALONE, Worker
from keyhouse.store import Store

__all__ = ["SecretIds", "secret_id"]

DELAY_SECONDS: Final = 60.0
"""Time after which a process writes its ids: one that is soon stopped leaves none."""

INTERVAL_SECONDS: Final = 300.0
EXPIRY_SECONDS: Final = 900.0
"""Lifetime of an id: after a secret was changed everywhere, the former one is reported as long."""

_log = structlog.get_logger("keyhouse.service")


class SecretInUse(msgspec.Struct, frozen=True):
    """A secret that a process of a service has, by its id."""

    service: str
    setting: str
    id: str


SECRET: Final = Record(
    SecretInUse, "secret:{service}:{setting}:{id}", name="secret", expiry=per_write()
)
SCHEMA: Final = Schema(
    "service", SECRET, space=Space("the processes of a service", name=SERVICE_SPACE)
)


def secret_id(secret: bytes) -> str:
    """Return the id of a secret: two processes that have the same id have the same secret."""
    return hmac.new(secret, b"id of this key", sha256).hexdigest()[:8]


class SecretIds:
    """`ids` are those of the secrets of a service, by the setting that shares each. `system` is its
    name, with what tells it apart from others on the same engine."""

    def __init__(
        self, engine: Engine, system: str, ids: Mapping[str, str], *, worker: Worker = ALONE
    ) -> None:
        self._store = Store(SCHEMA, engine, SERVICE_SPACE)
        self._system = system
        self._own = [SecretInUse(system, setting, id) for setting, id in ids.items()]
        self._reported: set[SecretInUse] = set()
        self._is_active = worker.is_first and engine.capabilities.shared and bool(ids)

    async def run(self) -> None:
        """Compare and write the ids until cancelled; return at once if there is nothing to
        compare."""
        if not self._is_active:
            return
        await self._try(write=False)
        await asyncio.sleep(DELAY_SECONDS)
        while True:
            await self._try(write=True)
            await asyncio.sleep(INTERVAL_SECONDS)

    async def compare(self) -> None:
        """Log each secret of which another process has another one, once."""
        for own in self._own:
            entries = self._store.scan(SECRET, service=own.service, setting=own.setting)
            others = {entry.record async for entry in entries} - {own} - self._reported
            if others:
                self._reported |= others
                _log.warning(
                    "another process of this service has another secret: what one signs, the other"
                    " rejects; give all the same, in this setting",
                    system=self._system,
                    setting=own.setting,
                )

    async def write(self) -> None:
        """Write the ids, or write them again before they expire."""
        for own in self._own:
            await self._store.put(SECRET, own, ttl=EXPIRY_SECONDS)

    async def _try(self, *, write: bool) -> None:
        try:
            if write:
                await self.write()
            await self.compare()
        except KeyhouseError as error:
            _log.warning("secrets not compared", system=self._system, reason=str(error))
