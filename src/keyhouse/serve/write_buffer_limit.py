"""The limit of unread responses, over all connections of the HTTP listener."""

from typing import Any

from keyhouse.http.limits import HTTP_WRITE_BUFFER_BYTES_MAX


class WriteBufferLimit:
    """Bounds the unread responses of all connections together.

    A client may read its response byte by byte: some hundred of them could make the service buffer
    gigabytes. Beyond the limit the connection that has waited longest is aborted.
    """

    __slots__ = ("_buffered", "_bytes_max", "_total")

    def __init__(self, bytes_max: int = HTTP_WRITE_BUFFER_BYTES_MAX) -> None:
        self._bytes_max = bytes_max
        self._buffered: dict[Any, int] = {}
        self._total = 0

    def __len__(self) -> int:
        """Return the number of waiting connections."""
        return len(self._buffered)

    def add(self, connection: Any, size: int) -> None:
        """Note that a connection has `size` bytes to write and waits. The newest is not aborted."""
        self.remove(connection)
        self._buffered[connection] = size
        self._total += size
        while self._total > self._bytes_max and len(self._buffered) > 1:
            oldest = next(iter(self._buffered))
            self.remove(oldest)
            oldest.abort()

    def remove(self, connection: Any) -> None:
        self._total -= self._buffered.pop(connection, 0)
