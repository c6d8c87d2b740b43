"""An LRU cache of values by sequence, bounded in bytes. The value of a sequence never changes.

An evicted value is fetched from the server when it is read.
"""

from collections import OrderedDict
from typing import Final

_ENTRY_BYTES: Final = 160
"""Memory per cached value, beside the value itself."""


class ValueCache:
    __slots__ = ("_bytes", "_bytes_max", "_values")

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._bytes = 0
        self._values: OrderedDict[int, bytes] = OrderedDict()

    def put(self, sequence: int, value: bytes) -> None:
        if sequence in self._values:
            return
        self._bytes += len(value) + _ENTRY_BYTES
        self._values[sequence] = value
        while self._bytes > self._bytes_max and self._values:
            self._bytes -= len(self._values.popitem(last=False)[1]) + _ENTRY_BYTES

    def get(self, sequence: int) -> bytes | None:
        value = self._values.get(sequence)
        if value is not None:
            self._values.move_to_end(sequence)
        return value

    def drop(self, sequence: int) -> None:
        value = self._values.pop(sequence, None)
        if value is not None:
            self._bytes -= len(value) + _ENTRY_BYTES
