"""Customers at work: the store and the quota of each, kept while they are in use.

A customer is only ever named by the token of who asks, and everything below takes the customer from here.
"""

from collections import OrderedDict
from typing import Final

import msgspec

from keyhouse.engine import Engine
from keyhouse.store import Store
from keyhouse.systems.streamkit.quota import Quota, Size
from keyhouse.systems.streamkit.schema import SCHEMAS
from keyhouse.systems.streamkit.settings import Settings

_KEPT: Final = 5_000
"""Customers that are remembered between requests. Whoever is forgotten is made anew, at the cost of measuring again."""


class Customer(msgspec.Struct, frozen=True):
    id: str
    store: Store
    quota: Quota


class Customers:
    def __init__(self, engine: Engine, settings: Settings) -> None:
        self.engine = engine
        self.settings = settings
        self._kept: OrderedDict[str, Customer] = OrderedDict()

    def get(self, id: str) -> Customer:
        """KeyFieldError when nobody can have such an id."""
        found = self._kept.get(id)
        if found is not None:
            self._kept.move_to_end(id)
            return found
        most = Size(self.settings.quota_keys, self.settings.quota_bytes)
        made = Customer(id, Store(SCHEMAS[0], self.engine, id), Quota(self.engine, id, most))
        self._kept[id] = made
        if len(self._kept) > _KEPT:
            self._kept.popitem(last=False)
        return made
