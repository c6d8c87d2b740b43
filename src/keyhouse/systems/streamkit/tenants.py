"""Customers, the tenants of Streamkit. A customer is named by the caller's token and nothing
else."""

import asyncio

from keyhouse.engine import Engine
from keyhouse.service.tenants import Tenant
from keyhouse.service.usage import Quota
from keyhouse.systems.streamkit.limits import LISTS_AT_ONCE_MAX
from keyhouse.systems.streamkit.schema import SCHEMAS
from keyhouse.systems.streamkit.settings import KeyVersion


class Customer(Tenant):
    """`lists` bounds the lists that are built in memory at once. `readable` has the revisions of
    rows that were found to be configs, by key: a GET sends a row as it is stored."""

    def __init__(self, name: str, engine: Engine, quota: Quota, keys: KeyVersion = "v1") -> None:
        super().__init__(name, SCHEMAS[0], engine, quota, writes_legacy_keys=keys == "v1")
        self.lists = asyncio.Semaphore(LISTS_AT_ONCE_MAX)
        self.readable: dict[str, int] = {}
