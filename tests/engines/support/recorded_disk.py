"""A SQLite VFS that records writes and syncs, and the images that a power cut may leave of them.

A disk keeps what was synced. Of what was written to a file since its last sync, each sector may be
there or not, in any order. So an image at a moment is the synced state of every file, with some
sectors of the writes that were pending; that of a prefix of all writes is one of them.
"""

from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Final, Literal, NamedTuple

import apsw

SECTOR_BYTES: Final = 512


class DiskEvent(NamedTuple):
    """`acknowledge`: a commit returned to its caller, with this number."""

    kind: Literal["write", "truncate", "sync", "delete", "acknowledge"]
    file: str = ""
    offset: int = 0
    data: bytes = b""


class RecordedDisk(apsw.VFS):
    """Passes everything on to real files, and records it. Without `syncs`, no sync is recorded: a
    disk that lies."""

    def __init__(self, name: str) -> None:
        super().__init__(name, "")
        self.name = name
        self.events: list[DiskEvent] = []

    def connect(
        self, path: str, flags: int = apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_CREATE
    ) -> apsw.Connection:
        """Replace `apsw.Connection`."""
        return apsw.Connection(path, flags=flags, vfs=self.name)

    def acknowledge(self, number: int) -> None:
        self.events.append(DiskEvent("acknowledge", offset=number))

    def xOpen(self, name: str | apsw.URIFilename | None, flags: list[int]) -> apsw.VFSFile:
        return _RecordedFile(self, name, flags)

    def xDelete(self, filename: str, syncdir: bool) -> None:
        super().xDelete(filename, syncdir)
        self.events.append(DiskEvent("delete", Path(filename).name))


class _RecordedFile(apsw.VFSFile):
    def __init__(
        self, disk: RecordedDisk, name: str | apsw.URIFilename | None, flags: list[int]
    ) -> None:
        path = name.filename() if isinstance(name, apsw.URIFilename) else name
        super().__init__("", name, flags)
        self._disk = disk
        self._file = Path(path or "").name

    def xWrite(self, data: bytes, offset: int) -> None:
        super().xWrite(data, offset)
        self._disk.events.append(DiskEvent("write", self._file, offset, bytes(data)))

    def xTruncate(self, size: int) -> None:
        super().xTruncate(size)
        self._disk.events.append(DiskEvent("truncate", self._file, size))

    def xSync(self, flags: int) -> None:
        super().xSync(flags)
        self._disk.events.append(DiskEvent("sync", self._file))


class PowerCut(NamedTuple):
    """The files after a power cut, and the commits that were acknowledged before it."""

    files: dict[str, bytes]
    acknowledged: int


def power_cuts(events: list[DiskEvent], images: int, random: Random) -> Iterator[PowerCut]:
    """Yield images, at random moments in the order of time."""
    moments = sorted(random.choices(range(len(events) + 1), k=images))
    synced: dict[str, bytearray] = {}
    pending: defaultdict[str, list[DiskEvent]] = defaultdict(list)
    acknowledged, done = 0, 0
    for moment in moments:
        for event in events[done:moment]:
            if event.kind == "acknowledge":
                acknowledged += 1
            elif event.kind == "delete":
                synced.pop(event.file, None)
                pending.pop(event.file, None)
            elif event.kind == "sync":
                file = synced.setdefault(event.file, bytearray())
                for each in pending.pop(event.file, ()):
                    _apply(file, each)
            else:
                pending[event.file].append(event)
        done = moment
        yield PowerCut(_image(synced, pending, random), acknowledged)


def _image(
    synced: dict[str, bytearray], pending: dict[str, list[DiskEvent]], random: Random
) -> dict[str, bytes]:
    files = {name: bytearray(file) for name, file in synced.items()}
    survival = random.choice((0.0, 0.5, 0.9, 1.0))
    prefix_only = random.random() < 0.5
    for name, events in pending.items():
        file = files.setdefault(name, bytearray())
        kept = events[: random.randint(0, len(events))] if prefix_only else events
        for event in kept:
            if prefix_only:
                _apply(file, event)
            elif event.kind == "truncate":
                if random.random() < survival:
                    _apply(file, event)
            else:
                for at in range(0, len(event.data), SECTOR_BYTES):
                    if random.random() < survival:
                        sector = event.data[at : at + SECTOR_BYTES]
                        _apply(file, DiskEvent("write", name, event.offset + at, sector))
    return {name: bytes(file) for name, file in files.items()}


def _apply(file: bytearray, event: DiskEvent) -> None:
    if event.kind == "truncate":
        del file[event.offset :]
        return
    end = event.offset + len(event.data)
    if len(file) < end:
        file.extend(bytes(end - len(file)))
    file[event.offset : end] = event.data
