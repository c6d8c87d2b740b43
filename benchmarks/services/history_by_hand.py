"""`python -m benchmarks.services.history_by_hand FOLDER`: a viewing event, written by hand.

The rows are those that case 9 changes: the entry and its place in the order of time.
"""

from pathlib import Path
from typing import Any

import msgspec

from benchmarks.services.app_process import run, serve
from benchmarks.services.by_hand import (
    DELETE,
    UPSERT,
    Rows,
    Tokens,
    Write,
    body_of,
    encode,
    respond,
)
from benchmarks.services.history_server import SECRET
from keyhouse.schema import MILLISECONDS

_NEWEST = 9_999_999_999_999


class Event(msgspec.Struct, rename="camel"):
    asset_type: str
    total_time: int
    progress: int
    update_time: str
    ext: dict[str, Any]


class Viewing(msgspec.Struct, rename="camel"):
    asset_id: str
    asset_type: str
    total_time: int
    state: str
    progress: int
    update_time: str
    progress_percentage: float


class Stored(msgspec.Struct):
    attr: Viewing
    ext: dict[str, Any]


_event = msgspec.json.Decoder(Event).decode
_stored = msgspec.json.Decoder(Stored).decode


class HistoryByHand:
    def __init__(self, folder: Path) -> None:
        self._rows = Rows(folder / "rows.db")
        self._tokens = Tokens(SECRET)

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        self._tokens.check(scope["headers"])
        _, _, _, profile, _, asset = scope["path"].split("/")
        event = _event(await body_of(receive))
        key = f"IN_PROGRESS|{asset}"
        before = self._rows.get(profile, key)
        completed = self._rows.get(profile, f"COMPLETED|{asset}")
        old = None if before is None else _stored(before)
        assert completed is None and (old is None or old.attr.update_time < event.update_time)
        attr = Viewing(
            asset,
            event.asset_type,
            event.total_time,
            "IN_PROGRESS",
            min(max(event.progress, 0), event.total_time),
            event.update_time,
            round(100 * event.progress / event.total_time, 2),
        )
        value = encode(Stored(attr, event.ext))
        place = _place(asset, event.update_time)
        writes: list[Write] = [
            (UPSERT, (profile, key, value, self._rows.revision + 1)),
            (UPSERT, (profile, place, b"1", self._rows.revision + 1)),
        ]
        keys = [key, place]
        if old is not None:
            last = _place(asset, old.attr.update_time)
            writes.append((DELETE, (profile, last)))
            keys.append(last)
        await self._rows.commit(profile, writes, keys)
        await respond(send, b'{"entry":%b,"applied":true}' % value)


def _place(asset: str, time: str) -> str:
    return f"newest|{_NEWEST - MILLISECONDS.parse(time):013d}|{asset}|IN_PROGRESS"


async def main(folder: Path) -> None:
    await serve(HistoryByHand(folder))


if __name__ == "__main__":
    run(main)
