"""Case 9: a viewing event over HTTP with a token, durable, against the same work by hand.

Each of 64 connections is the client of one profile, which reports progress of one of ten assets: a
commit that changes the entry and its place in the order of time.
"""

from collections.abc import Iterator
from itertools import count, cycle
from pathlib import Path
from typing import Any

from benchmarks.services.history_server import SECRET
from benchmarks.services.http_client import sent
from benchmarks.services.service_comparison import BY_HAND, CONNECTIONS, Comparison, StartPeer
from keyhouse.auth import mint
from keyhouse.bench.result import Result
from keyhouse.schema import MILLISECONDS
from keyhouse_history.settings import HistorySettings

ASSETS = 10
STARTS_AT = 1_768_737_600_000


def events(_: Any = None) -> Iterator[bytes]:
    """Events of all profiles in turn, each newer than the one before."""
    settings = HistorySettings(jwt_secret=SECRET)
    tokens = [mint(settings, Path(), f"profile-{n}") for n in range(CONNECTIONS)]
    for number, (profile, token) in zip(count(), cycle(enumerate(tokens)), strict=False):
        asset = number // CONNECTIONS % ASSETS
        body = (
            b'{"assetType":"tv-episode","totalTime":6604,"progress":%d,"updateTime":"%s",'
            b'"ext":{"showCategoryId":"1446","seasonCategoryId":"1450"}}'
        ) % (number % 6_000, MILLISECONDS.format(STARTS_AT + number).encode())
        yield sent("PUT", f"/history/profiles/profile-{profile}/assets/{asset}", token, body)


def measure(folder: Path, rounds: int, size: int, start_peer: StartPeer) -> Result:
    comparison = Comparison(
        "benchmarks.services.history_server",
        events,
        b'"applied":true}',
        start_peer,
        by_hand="benchmarks.services.history_by_hand",
    )
    measured = comparison.measure(folder, rounds, size)
    return Result(
        case="9",
        work=f"PUT of a viewing event with a token, durable, {CONNECTIONS} connections",
        unit="requests/s",
        measurements=[*measured.values()],
        goal=0.45,
        baseline=BY_HAND,
        peer_goal=4 if "peer" in measured else None,
        note="SQLite, synchronous; one profile for each connection",
    )
