"""Customers at work: the store and the quota of each, kept while they are in use.

A customer is only ever named by the token of who asks, and everything below takes the customer from here.
"""

import asyncio
from collections import OrderedDict
from typing import Final

import msgspec

from keyhouse.engine import Engine
from keyhouse.store import Store
from keyhouse.systems.streamkit.limits import LISTS_AT_ONCE_MAX
from keyhouse.systems.streamkit.quota import Quota, QuotaSize
from keyhouse.systems.streamkit.schema import SCHEMAS
from keyhouse.systems.streamkit.versions import KeyVersion

_KEPT: Final = 5_000
"""Customers that are remembered between requests. Whoever is forgotten is made anew, at the cost of measuring again."""


class Customer(msgspec.Struct, frozen=True):
    """`lists`: leave to build a list in memory, so that whoever asks for a thousand at once has them one after the other."""

    id: str
    store: Store
    quota: Quota
    lists: asyncio.Semaphore


class Customers:
    """`most` is what each may keep; `keys` is the version of the keys of what is new."""

    def __init__(self, engine: Engine, most: QuotaSize, keys: KeyVersion) -> None:
        self.engine = engine
        self.most = most
        self.keys = keys
        self._kept: OrderedDict[str, Customer] = OrderedDict()

    def get(self, id: str) -> Customer:
        """KeyFieldError when nobody can have such an id."""
        found = self._kept.get(id)
        if found is not None:
            self._kept.move_to_end(id)
            return found
        store, quota = Store(SCHEMAS[0], self.engine, id), Quota(self.engine, id, self.most)
        made = Customer(id, store, quota, asyncio.Semaphore(LISTS_AT_ONCE_MAX))
        self._kept[id] = made
        if len(self._kept) > _KEPT:
            self._kept.popitem(last=False)
        return made
