"""Case 11: the scan of a library of audio files, against a bare loop of mutagen and SHA-256."""

import asyncio
import hashlib
import shutil
from contextlib import suppress
from pathlib import Path
from typing import Any

import mutagen

from keyhouse import open_engine
from keyhouse.bench.comparison import compare
from keyhouse.bench.result import Result
from keyhouse.service.background_operations import BackgroundOperations, OperationKind
from keyhouse.store import open_migrated
from keyhouse_audiobooks.books.catalog import BookCatalog
from keyhouse_audiobooks.books.covers import Covers
from keyhouse_audiobooks.files.generated_audio import write_audio
from keyhouse_audiobooks.files.operations import LibraryOperationRecords
from keyhouse_audiobooks.files.scanner import Scanner
from keyhouse_audiobooks.library import Library
from keyhouse_audiobooks.schema import OPERATION, SCHEMAS

GOAL = 0.70
SECOND_GOAL = 20.0
FILES_PER_BOOK = 20
FORMATS = ("mp3", "m4b", "flac", "ogg")


def write_books(root: Path, count: int) -> list[Path]:
    """Write files of a few seconds, in folders of 20."""
    paths = []
    for number in range(count):
        book, track = divmod(number, FILES_PER_BOOK)
        tags = {
            "album": f"Book {book}",
            "author": f"Author {book // 5}",
            "narrator": "Somebody",
            "title": f"Part {track + 1}",
            "track": str(track + 1),
        }
        name = f"{track + 1:03d}.{FORMATS[book % len(FORMATS)]}"
        paths.append(write_audio(root / f"book {book}" / name, 5, tags=tags))
    return paths


class ScannedLibrary:
    """A library on SQLite, whose scans run as operations of the service do."""

    def __init__(self, root: Path, folder: Path) -> None:
        self._root = root
        self._folder = folder

    async def open(self) -> None:
        self._folder.mkdir(parents=True)
        self._engine = await open_engine(f"sqlite:///{self._folder}/rows.db")
        await open_migrated(SCHEMAS[0], self._engine, "main")
        library = Library("main", self._engine, roots=[self._root], folder=self._folder)
        scanner = Scanner(library, BookCatalog(library), Covers(library, self._folder / "covers"))
        self._store = library.store
        self._operations = BackgroundOperations(
            library.store,
            LibraryOperationRecords(),
            {"scan": OperationKind(run=scanner.scan, resumes=True, exclusive=True)},
            name="audiobooks",
        )
        self._running = asyncio.create_task(self._operations.run())

    async def scan(self) -> int:
        """Scan all files; return their number."""
        id = await self._operations.submit("scan", {})
        await self._operations.wait(id, poll_seconds=0.005)
        operation = await self._store.get(OPERATION, id=id)
        assert operation is not None and operation.status == "completed", operation
        return operation.progress.total

    async def close(self) -> None:
        self._running.cancel()
        with suppress(asyncio.CancelledError):
            await self._running
        await self._engine.close()
        shutil.rmtree(self._folder)


def _read_all(paths: list[Path]) -> int:
    """Read tags and hash of each file, and keep nothing."""
    for path in paths:
        found: Any = mutagen.File(path)
        assert found.info.length > 0 and found.tags is not None
        with path.open("rb") as file:
            hashlib.file_digest(file, "sha256").hexdigest()
    return len(paths)


async def measure(folder: Path, rounds: int, count: int) -> list[Result]:
    paths = write_books(folder / "books", count)
    numbers = iter(range(10**6))
    scanned = ScannedLibrary(folder / "books", folder / "scanned")
    await scanned.open()
    assert await scanned.scan() == count

    async def first_scan() -> int:
        library = ScannedLibrary(folder / "books", folder / f"library {next(numbers)}")
        await library.open()
        found = await library.scan()
        await library.close()
        return found

    async def by_hand() -> int:
        return await asyncio.to_thread(_read_all, paths)

    measured = await compare(
        {"ours": first_scan, "baseline": by_hand, "second": scanned.scan}, rounds=rounds
    )
    await scanned.close()
    second, first = measured["second"], measured["ours"]
    return [
        Result(
            case="11",
            work=f"scan of {count:,} audio files into a new library, durable",
            unit="files/s",
            measurements=[first, measured["baseline"]],
            goal=GOAL,
            baseline="a bare loop of mutagen and SHA-256",
        ),
        Result(
            case="11",
            work=f"second scan of {count:,} audio files, of which none has changed",
            unit="files/s",
            measurements=[_named(second, "ours"), _named(first, "baseline")],
            goal=SECOND_GOAL,
            baseline="the first scan",
        ),
    ]


def _named(measured: Any, name: str) -> Any:
    return type(measured)(name, measured.median, measured.rounds, measured.cpu_us)
