"""What clients have not taken of their answers, over all connections, and a bound to it.

An answer is held until its client takes it, and a client may take it byte by byte: some hundred that do so would have the
service hold gigabytes. When there is more than may be, whoever has kept it waiting the longest is cut off.
"""

from typing import Protocol

from keyhouse.limits import HTTP_WRITE_BUFFER_BYTES_MAX


class Slow(Protocol):
    """A connection whose client takes less than it is sent."""

    def cut_off(self) -> None: ...


class WriteBufferLimit:
    __slots__ = ("_bytes_max", "_held", "_total")

    def __init__(self, bytes_max: int = HTTP_WRITE_BUFFER_BYTES_MAX) -> None:
        self._bytes_max = bytes_max
        self._held: dict[Slow, int] = {}
        self._total = 0

    def __len__(self) -> int:
        """How many connections are waited for."""
        return len(self._held)

    def hold(self, connection: Slow, size: int) -> None:
        """The connection has so much to send, and waits from now on. The newest is never the one that is cut off."""
        self.release(connection)
        self._held[connection] = size
        self._total += size
        while self._total > self._bytes_max and len(self._held) > 1:
            longest = next(iter(self._held))
            self.release(longest)
            longest.cut_off()

    def release(self, connection: Slow) -> None:
        self._total -= self._held.pop(connection, 0)
