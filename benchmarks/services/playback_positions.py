"""Case 10: a playback position over HTTP with a token, durable: event, place and statistics."""

from collections.abc import Iterator
from itertools import count, cycle
from pathlib import Path
from typing import Any

from benchmarks.services.http_client import sent
from benchmarks.services.playback_server import SECONDS
from benchmarks.services.service_comparison import (
    BY_HAND_GOAL,
    CONNECTIONS,
    Comparison,
    against_hand,
)
from keyhouse.bench.result import Result


def positions(started: Any) -> Iterator[bytes]:
    """Positions of all listeners in turn, each further on than the one before."""
    path = f"/audiobooks/api/v1/books/{started['book']}/position"
    for number, token in zip(count(), cycle(started["tokens"]), strict=False):
        at = number // CONNECTIONS * 10 % SECONDS
        body = b'{"segment_id":"%s","position_seconds":%d}' % (started["segment"].encode(), at)
        yield sent("POST", path, token, body)


def measure(folder: Path, rounds: int, size: int) -> list[Result]:
    comparison = Comparison(
        "benchmarks.services.playback_server",
        positions,
        b"}}",
        by_hand="benchmarks.services.playback_by_hand",
    )
    measured = comparison.measure(folder, rounds, size)
    result = Result(
        case="10",
        work=f"POST of a playback position with a token, durable, {CONNECTIONS} connections",
        unit="requests/s",
        measurements=[each for name, each in measured.items() if name != "by hand"],
        goal=0.35,
        baseline="a constant on the same server, which reads the body",
        note="SQLite, synchronous; one listener for each connection",
    )
    return [result, against_hand(result, measured, BY_HAND_GOAL)]
