"""The place of a process among the workers of one `keyhouse serve`."""

from typing import Final

import msgspec

__all__ = ["ALONE", "Worker"]


class Worker(msgspec.Struct, frozen=True):
    """Worker `number` of `count`, which share a data folder, a socket and the engines.

    Worker 0 runs the background work that a host needs once: another process takes its place
    within a second if it dies.
    """

    number: int = 0
    count: int = 1

    @property
    def is_first(self) -> bool:
        return self.number == 0


ALONE: Final = Worker()
"""A process that shares nothing."""
