"""Customers, the tenants of Streamkit. A customer is named by the caller's token and nothing
else."""

import asyncio
from typing import Final

from keyhouse.engine import Engine
from keyhouse.schema import Schema
from keyhouse.service.tenants import Tenant
from keyhouse.service.usage import Quota
from keyhouse_streamkit.limits import LISTS_AT_ONCE_MAX
from keyhouse_streamkit.schema import SCHEMAS
from keyhouse_streamkit.settings import KeyVersion

_SCHEMAS: Final[dict[KeyVersion, Schema]] = {
    "v1": SCHEMAS[0],
    "v2": SCHEMAS[0].writing_legacy_keys(False),
}
"""The schema by the version of the keys that a store writes."""


class Customer(Tenant):
    """`lists` bounds the lists that are built in memory at once. `readable` has the revisions of
    rows that were found to be configs, by key: a GET sends a row as it is stored."""

    def __init__(self, name: str, engine: Engine, quota: Quota, keys: KeyVersion = "v1") -> None:
        super().__init__(name, _SCHEMAS[keys], engine, quota)
        self.lists = asyncio.Semaphore(LISTS_AT_ONCE_MAX)
        self.readable: dict[str, int] = {}
