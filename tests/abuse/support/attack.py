"""Runs attacks beside a neighbor, and asserts the bounds of promise 8 (docs/reliability.md)."""

import http.client
import socket
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from typing import NamedTuple

from keyhouse.service.thread_priority import lower_priority
from tests.abuse.support.neighbor import Latencies, Neighbor
from tests.abuse.support.server import ServerProcess
from tests.sizes import SOAK, size

RSS_GROWTH_BYTES_MAX = 256 * 1_024 * 1_024
SLOWDOWN_MAX = 3.0
P99_FLOOR_SECONDS = 0.05
"""Below this a p99 counts as calm. Other tests share the cores in a usual run, so that it asserts
memory and that the neighbor is served; `make soak` on a quiet machine asserts the ratio."""

CALM_SECONDS = 3.0
RECONNECT_SECONDS = 0.1
"""Between two tries of a client that was disconnected: a flood of connections is another attack."""

END_SECONDS_MAX = 60.0
"""For a client to end after it is stopped."""


class Stop(threading.Event):
    """Ends the clients of an attack, and disconnects them: they may wait for a response."""

    def __init__(self) -> None:
        super().__init__()
        self._connections: list[socket.socket] = []

    def disconnects(self, connection: socket.socket) -> socket.socket:
        """Register a connection to disconnect when the event is set."""
        self._connections.append(connection)
        if self.is_set():
            self.set()
        return connection

    def set(self) -> None:
        super().set()
        for connection in self._connections:
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)


Client = Callable[[ServerProcess, Stop], None]
"""Attacks until the event is set; runs in its own thread."""


def repeat(
    stop: Stop,
    server: ServerProcess,
    method: str,
    path: str,
    body: bytes | None,
    headers: Mapping[str, str],
) -> None:
    """Send a request and read its response, again and again."""

    class Connection(http.client.HTTPConnection):
        def connect(self) -> None:
            super().connect()
            stop.disconnects(self.sock)

    while not stop.is_set():
        connection = Connection(*server.address, timeout=60)
        with suppress(OSError, http.client.HTTPException):
            while not stop.is_set():
                connection.request(method, path, body, headers)
                connection.getresponse().read()
        connection.close()
        stop.wait(RECONNECT_SECONDS)


class Outcome(NamedTuple):
    calm: Latencies | None
    under_attack: Latencies
    rss_calm: int
    rss_peaks: dict[str, int]
    """The most until the end of each attack, by its name."""

    def __str__(self) -> str:
        peaks = ", ".join(f"{name} {peak >> 20} MB" for name, peak in self.rss_peaks.items())
        return (
            f"calm: {self.calm and self.calm.summary()}; "
            f"under attack: {self.under_attack.summary()}; RSS {self.rss_calm >> 20} MB, {peaks}"
        )

    def check(self) -> None:
        assert not self.under_attack.errors, (self.under_attack.errors[:3], str(self))
        assert all(self.under_attack.seconds.values()), str(self)
        growth = max(self.rss_peaks.values()) - self.rss_calm
        assert growth <= RSS_GROWTH_BYTES_MAX, str(self)
        if self.calm is not None:
            limit = max(SLOWDOWN_MAX * self.calm.p99, P99_FLOOR_SECONDS)
            assert self.under_attack.p99 <= limit, str(self)


def check_neighbor(
    server: ServerProcess,
    attacks: Mapping[str, Sequence[Client]],
    *,
    seconds: float,
    together: int = 1,
) -> None:
    """Assert that a neighbor does not notice the attacks: in turn, for `seconds` each, beside one
    neighbor; `together` of them at once. A soak runs each alone for a minute, and measures a calm
    service before it."""
    if not SOAK:
        names = [*attacks]
        groups = [names[start : start + together] for start in range(0, len(names), together)]
        joined = {
            ", ".join(group): [client for name in group for client in attacks[name]]
            for group in groups
        }
        run(server, joined, seconds=seconds).check()
        return
    for name, clients in attacks.items():
        run(server, {name: clients}, seconds=size(5, 5, 60), calm_seconds=CALM_SECONDS).check()


def run(
    server: ServerProcess,
    attacks: Mapping[str, Sequence[Client]],
    *,
    seconds: float,
    calm_seconds: float = 0,
) -> Outcome:
    """Measure calm, then attack while a neighbor measures."""
    calm = None
    if calm_seconds:
        with Neighbor(server) as neighbor:
            threading.Event().wait(calm_seconds)
            calm = neighbor.result()
    rss_calm = server.rss_bytes
    peaks: dict[str, int] = {}
    with Neighbor(server) as neighbor:
        for name, clients in attacks.items():
            with _attacked(server, clients) as peak:
                peak.wait(seconds)
            peaks[name] = peak.bytes
        under_attack = neighbor.result()
    return Outcome(calm, under_attack, rss_calm, peaks)


class _Peak:
    """Samples the memory use of a server."""

    def __init__(self, server: ServerProcess) -> None:
        self._server = server
        self.bytes = server.rss_bytes

    def wait(self, seconds: float) -> None:
        pause = threading.Event()
        for _ in range(max(1, round(seconds / 0.05))):
            pause.wait(min(seconds, 0.05))
            self.bytes = max(self.bytes, self._server.rss_bytes)


@contextmanager
def _attacked(server: ServerProcess, clients: Sequence[Client]) -> Iterator[_Peak]:
    """Run clients in threads until the end of the block."""
    stop = Stop()

    def attack(client: Client) -> None:
        lower_priority()  # as on another machine: clients take no core from the service
        client(server, stop)

    with ExitStack() as ending:
        for client in clients:
            thread = threading.Thread(target=attack, args=(client,))
            thread.start()
            ending.callback(_join, thread)
        ending.callback(stop.set)
        peak = _Peak(server)
        yield peak
        peak.wait(0)


def _join(thread: threading.Thread) -> None:
    thread.join(END_SECONDS_MAX)
    assert not thread.is_alive(), "a client has not ended"
