"""Case 10: a playback position over HTTP with a token, durable: event, place and statistics.

Each is a second after the one before: as much as counts as heard, however fast they come.
"""

from collections.abc import Iterator
from itertools import count, cycle
from pathlib import Path
from typing import Any

from benchmarks.services.http_client import sent
from benchmarks.services.playback_server import SECONDS
from benchmarks.services.service_comparison import BY_HAND, CONNECTIONS, Comparison
from keyhouse.bench.result import Result


def positions(started: Any) -> Iterator[bytes]:
    """Positions of all listeners in turn, each further on than the one before."""
    path = f"/audiobooks/api/v1/books/{started['book']}/position"
    for number, token in zip(count(), cycle(started["tokens"]), strict=False):
        at = number // CONNECTIONS % SECONDS
        body = b'{"segment_id":"%s","position_seconds":%d}' % (started["segment"].encode(), at)
        yield sent("POST", path, token, body)


def measure(folder: Path, rounds: int, size: int) -> Result:
    comparison = Comparison(
        "benchmarks.services.playback_server",
        positions,
        b"}}",
        by_hand="benchmarks.services.playback_by_hand",
    )
    measured = comparison.measure(folder, rounds, size)
    return Result(
        case="10",
        work=f"POST of a playback position with a token, durable, {CONNECTIONS} connections",
        unit="requests/s",
        measurements=[*measured.values()],
        goal=0.45,
        baseline=BY_HAND,
        note="SQLite, synchronous; one listener for each connection",
    )
