"""Case 6b: a schema of one's own over HTTP with a token: one record, and 50 by an index."""

from collections.abc import Iterator
from itertools import repeat
from pathlib import Path
from typing import Any

from benchmarks.services.http_client import get
from benchmarks.services.schema_server import LISTED
from benchmarks.services.service_comparison import BY_HAND, CONNECTIONS, Comparison, StartPeer
from keyhouse.bench.result import Result

_MODULE = "benchmarks.services.schema_server"
_GOAL, _LIST_GOAL = 0.45, 0.50
_PEER_GOAL = 5


def one(started: Any) -> Iterator[bytes]:
    return repeat(get("/notes/records/note/n00007", started["token"]))


def listed(started: Any) -> Iterator[bytes]:
    path = f"/notes/records/note?by=author&author=a7&limit={LISTED}"
    return repeat(get(path, started["token"]))


def measure(
    folder: Path, rounds: int, size: int, start_one: StartPeer, start_list: StartPeer
) -> list[Result]:
    single = Comparison(_MODULE, one, b"}", start_one).measure(folder / "one", rounds, size)
    many = Comparison(
        _MODULE, listed, b"}", start_list, by_hand="benchmarks.services.schema_by_hand"
    ).measure(folder / "many", rounds, size // 8)
    return [
        Result(
            case=case,
            work=f"{work}, a schema of one's own, {CONNECTIONS} connections",
            unit="requests/s",
            measurements=[*measured.values()],
            goal=goal,
            baseline=baseline,
            peer_goal=_PEER_GOAL if "peer" in measured else None,
        )
        for case, work, measured, goal, baseline in (
            ("6b", "GET of one record", single, _GOAL, "a constant on the same server"),
            ("6b list", f"GET of {LISTED} records by an index", many, _LIST_GOAL, BY_HAND),
        )
    ]
