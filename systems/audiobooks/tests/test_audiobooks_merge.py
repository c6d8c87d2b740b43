"""Merging a book with many listeners: past the limit of a commit, and killed at every step."""

import asyncio
import random
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx
import pytest

from keyhouse.clock import ManualClock
from keyhouse.engine import Engine
from keyhouse.engines.memory import MemoryEngine
from keyhouse.service.background_operations import BackgroundOperations, OperationKind
from keyhouse.store import Store, verify
from keyhouse.testing.faults import FaultyEngine, Killed, die
from keyhouse_audiobooks.books.segments import write_segments
from keyhouse_audiobooks.files import merger
from keyhouse_audiobooks.files.audio_files import AudioFile, FoundFile, read_file
from keyhouse_audiobooks.files.generated_audio import write_audio
from keyhouse_audiobooks.files.merger import Merger
from keyhouse_audiobooks.files.operations import LibraryOperationRecords
from keyhouse_audiobooks.library import Library
from keyhouse_audiobooks.records import Book, Bookmark, Progress, Segment, User
from keyhouse_audiobooks.schema import (
    BOOK,
    BOOKMARK,
    DURATION_MAP,
    OPERATION,
    OPERATION_LOG,
    OPERATION_RUN,
    PROGRESS,
    SEGMENT,
    USER,
)
from systems.audiobooks.tests.support.service import LibraryService, on_both_engines
from systems.audiobooks.tests.test_audiobooks_listening import Shelf, shelf
from systems.audiobooks.tests.test_audiobooks_scan import TAGS, finished, scan, segments

__all__ = ["shelf"]

LISTENERS = 5_000
SECONDS = 10.0


def _user(store: Store, number: int) -> User:
    return User(id=store.ids.new(), username=f"user{number}", password_hash="x")


def _moments(progress: list[Progress], starts: dict[str, float]) -> dict[str, float]:
    return {each.user_id: starts[str(each.segment_id)] + each.position_seconds for each in progress}


async def _places(store: Store) -> list[Progress]:
    return [entry.record async for entry in store.scan(PROGRESS)]


@on_both_engines
def test_a_merge_past_the_commit_limit_moves_each_listener_to_the_same_moment(shelf: Shelf) -> None:
    chance, book = random.Random(7), shelf.book["id"]

    async def many(store: Store) -> list[Progress]:
        users = [_user(store, number) for number in range(LISTENERS)]
        found = [
            Progress(
                user_id=user.id,
                book_id=book,
                segment_id=chance.choice(shelf.ids),
                position_seconds=chance.randrange(0, 101),
                percent_complete=50.0,
            )
            for user in users
        ]
        for start in range(0, LISTENERS, 500):
            await store.put_many(USER, users[start : start + 500])
            await store.put_many(PROGRESS, found[start : start + 500])
        return found

    before = shelf.service.run(many)
    starts = {id: 100.0 * number for number, id in enumerate(shelf.ids)}
    merged = write_audio(shelf.service.roots[0] / "merged" / "whole.wav", 300, tags=TAGS)
    path = f"{shelf.path}/merge"
    dry = shelf.admin.post(path, json={"file_path": str(merged)}, params={"dry_run": True})
    shown = {each["user_id"]: each["new_position_seconds"] for each in dry.json()["data"]["items"]}
    reply = shelf.admin.post(path, json={"file_path": str(merged)})
    assert finished(shelf.admin, reply)["status"] == "completed"
    [segment] = segments(shelf.admin, shelf.book)
    after = shelf.service.run(_places)
    assert {each.segment_id for each in after} == {segment["id"]} and len(after) == LISTENERS
    assert _moments(after, {segment["id"]: 0.0}) == _moments(before, starts) == shown


def test_a_place_at_the_end_stays_at_the_end_of_a_shorter_file(shelf: Shelf) -> None:
    shelf.save(shelf.phone, 2, 100, event_type="start")
    merged = write_audio(shelf.service.roots[0] / "merged" / "whole.wav", 296, tags=TAGS)
    reply = shelf.admin.post(f"{shelf.path}/merge", json={"file_path": str(merged)})
    assert finished(shelf.admin, reply)["status"] == "completed"
    [segment] = segments(shelf.admin, shelf.book)
    state = shelf.phone.get(f"{shelf.path}/state").json()["data"]
    assert (state["last_segment_id"], state["position_seconds"]) == (segment["id"], 296)
    assert state["status"] == "finished"


# Killed at every step


class Merge:
    """A library with a book of three segments, many listeners for its engine, and a merged file."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.file = write_audio(root / "whole.wav", 3 * SECONDS, tags=TAGS)

    def library(self, engine: Engine) -> Library:
        return Library("main", engine, roots=[self.root], folder=self.root, run=_directly)

    async def fill(self, engine: Engine, listeners: int) -> tuple[str, dict[str, float]]:
        """Return the id of the book, and the moment of each listener."""
        store = self.library(engine).store
        book = Book(id=store.ids.new(), title="Book")
        await store.put(BOOK, book)
        files = [
            Segment(
                id=store.ids.new(),
                book_id=book.id,
                file_path=str(self.root / f"{number}.wav"),
                format="wav",
                size_bytes=1,
                duration_seconds=SECONDS,
                hash_sha256="0" * 64,
                track_number=number,
                total_tracks=3,
            )
            for number in (1, 2, 3)
        ]
        await store.transact(lambda tx: write_segments(tx, book.id, files))
        moments: dict[str, float] = {}
        for number in range(listeners):
            user, position = _user(store, number), float(number % 10)
            place: dict[str, Any] = {
                "segment_id": files[number % 3].id,
                "position_seconds": position,
            }
            await store.put(USER, user)
            await store.put(PROGRESS, Progress(user_id=user.id, book_id=book.id, **place))
            mark = Bookmark(id=store.ids.new(), user_id=user.id, book_id=book.id, **place)
            await store.put(BOOKMARK, mark)
            moments[user.id] = number % 3 * SECONDS + position
        return book.id, moments

    def operations(self, engine: Engine) -> BackgroundOperations:
        library = self.library(engine)
        kind = OperationKind(run=Merger(library).merge, resumes=True, exclusive=True)
        return BackgroundOperations(
            library.store, LibraryOperationRecords(), {"merge": kind}, name="audiobooks"
        )

    async def until_killed(self, engine: Engine, book_id: str) -> bool:
        """Submit and run a merge on an engine that dies. Return whether it was submitted."""
        operations, was_submitted = self.operations(engine), False
        runner = asyncio.create_task(operations.run())
        try:
            given = {"book_id": book_id, "file_path": str(self.file)}
            id = await operations.submit("merge", given)
            was_submitted = True
            store = self.library(engine).store
            while not runner.done() and await store.get(OPERATION_RUN, id=id) is not None:
                await asyncio.sleep(0)
        except Killed:
            pass
        runner.cancel()
        for task in [runner, *operations.tasks]:
            with suppress(BaseException):
                await task
        return was_submitted

    async def finish(self, engine: Engine) -> int:
        """Run what is left in another process; return how many operations that were."""
        store, operations = self.library(engine).store, self.operations(engine)
        left = [entry.record.id async for entry in store.scan(OPERATION_RUN)]
        runner = asyncio.create_task(operations.run())
        for id in left:
            await operations.wait(id, poll_seconds=0)
        runner.cancel()
        with suppress(asyncio.CancelledError):
            await runner
        return len(left)


async def _directly(function: Any, *args: Any) -> Any:
    return function(*args)


async def _read_here(found: FoundFile, roots: Sequence[Path]) -> AudioFile:
    return read_file(found, roots)


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("rows", [10_000, 90], ids=["one commit", "chunks"])
def test_a_merge_killed_at_every_step_ends_exactly_once(
    tmp_path: Path, rows: int, after: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    merge = Merge(tmp_path)
    monkeypatch.setattr(merger, "read_one", _read_here)  # the steps are calls of the engine

    async def one(step: int) -> bool:
        """Kill at one call of the engine; return False if the merge ended before it."""
        clock = ManualClock()
        engine = MemoryEngine(clock)
        book, moments = await merge.fill(engine, 16)
        dying = FaultyEngine(engine, die(step, after=after), rows=rows)
        was_submitted = await merge.until_killed(dying, book)
        clock.advance(seconds=61)
        left = await merge.finish(FaultyEngine(engine, rows=rows))
        store = merge.library(engine).store
        done = [entry.record async for entry in store.scan(OPERATION)]
        if not done:
            assert not was_submitted
            return True
        assert [(each.status, each.error) for each in done] == [("completed", None)]
        await _check(store, book, moments)
        return bool(left)

    async def every_step() -> int:
        steps = 0
        while await one(steps + 1) or steps < 8:
            steps += 1
        return steps

    assert asyncio.run(every_step()) > 15, "the kills did not reach the merge"


async def _check(store: Store, book: str, moments: dict[str, float]) -> None:
    """Assert that the book has one segment, and every place is at its moment in it."""
    found = [entry.record async for entry in store.scan(SEGMENT)]
    [new] = [each for each in found if each.active]
    assert [each.superseded_by for each in found if not each.active] == [new.id] * 3
    durations = await store.get(DURATION_MAP, book_id=book)
    assert durations is not None and durations.total_duration == 3 * SECONDS
    places = await _places(store)
    assert {each.user_id: each.position_seconds for each in places} == moments
    assert {each.segment_id for each in places} == {new.id}
    marks = [entry.record async for entry in store.scan(BOOKMARK)]
    assert {each.user_id: each.position_seconds for each in marks} == moments
    messages = [entry.record.message async for entry in store.scan(OPERATION_LOG)]
    assert messages.count("All places are moved.") == 1
    assert [each async for each in verify(store)] == []


@on_both_engines
def test_a_player_that_continues_during_a_merge_keeps_its_place(
    service: LibraryService, admin: httpx.Client
) -> None:
    shelf = Shelf(service, admin)
    merged = write_audio(service.roots[0] / "merged" / "whole.wav", 300, tags=TAGS)
    shelf.save(shelf.phone, 1, 10, event_type="start")
    reply = admin.post(f"{shelf.path}/merge", json={"file_path": str(merged)})
    service.clock.advance(seconds=10)
    late = shelf.save(shelf.phone, 1, 20)  # the player still has the old file
    assert late.json()["data"]["position_seconds"] == 120
    assert finished(admin, reply)["status"] == "completed"
    assert shelf.statistics("/stats/me") == (1, 10)
    scan(admin)
    assert len(segments(admin, shelf.book)) == 1
    shelf.phone.close()
    shelf.desk.close()
