"""A customer's quota, where what was written is not what was reserved: it commits meanwhile, or fails, or nobody knows. And
how much of the memory a customer may have."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from keyhouse import ManualClock
from keyhouse.engine import Page, Span
from keyhouse.engines.memory import MemoryEngine
from keyhouse.errors import QuotaError, UnavailableError, UnknownOutcomeError
from keyhouse.systems.streamkit import quota
from keyhouse.systems.streamkit.configs import Configs
from keyhouse.systems.streamkit.customers import Customers
from keyhouse.systems.streamkit.limits import LISTS_AT_ONCE_MAX
from keyhouse.systems.streamkit.quota import NOTHING, Quota, QuotaSize, Room
from keyhouse.testing.faults import FaultyEngine, fail
from tests.systems.streamkit_service import asked

ONE = QuotaSize(1, 10)


def test_a_write_that_commits_behind_the_measurements_back_is_counted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It was lost: what the scan had found replaced what was known, though the scan had passed the row's place before it
    was written. The next writer then had room that there was not."""

    async def scenario() -> None:
        kept = 1
        scanned = asyncio.Event()
        scanned.set()

        async def measured(*_: object) -> QuotaSize:
            found = QuotaSize(kept, 10 * kept)
            await scanned.wait()
            return found

        async def write(room: Room) -> None:
            nonlocal kept
            room.reserve(ONE)
            await committing.wait()
            kept += 1

        monkeypatch.setattr(quota, "measured", measured)
        clock = ManualClock(1_700_000_000_000)
        customer = Quota(MemoryEngine(clock=clock), "12345", QuotaSize(2, 1_000))
        committing = asyncio.Event()
        first = asyncio.ensure_future(customer.within(write))
        await asyncio.sleep(0)
        clock.advance(seconds=301)
        scanned.clear()
        second = asyncio.ensure_future(customer.within(write))
        await asyncio.sleep(0)
        committing.set()
        await first
        scanned.set()
        with pytest.raises(QuotaError):
            await second
        assert kept == 2

    asyncio.run(scenario())


def test_room_that_a_deletion_may_free_is_given_away_only_when_it_is_free() -> None:
    """A deletion under way counted as done: another writer took its room, and kept it when the deletion failed."""

    async def scenario() -> None:
        customer = Quota(MemoryEngine(), "12345", QuotaSize(1, 1_000))
        deleting = asyncio.Event()

        async def delete(room: Room) -> None:
            room.reserve(NOTHING - ONE)
            await deleting.wait()
            raise UnavailableError("The engine is away.")

        async def write(room: Room) -> None:
            room.reserve(ONE)

        await customer.within(write)
        first = asyncio.ensure_future(customer._run(delete))
        await asyncio.sleep(0)
        with pytest.raises(QuotaError):
            await customer._run(write)
        deleting.set()
        with pytest.raises(UnavailableError):
            await first
        assert customer.reserved == NOTHING

    asyncio.run(scenario())


def test_a_write_whose_outcome_nobody_knows_is_looked_for() -> None:
    """It counted as not written for five minutes, and with each one a customer passed the quota further."""

    async def scenario() -> None:
        note = {"title": "", "content": ""}
        engine = FaultyEngine(MemoryEngine(), fail(1, UnknownOutcomeError, after=True))
        configs = Configs(Customers(engine, QuotaSize(1, 1_000), "v1"))
        with pytest.raises(UnknownOutcomeError):
            await configs.create("12345", "notes", note)
        with pytest.raises(QuotaError):
            await configs.create("12345", "notes", note)

    asyncio.run(scenario())


class Slow(MemoryEngine):
    """Whose scans wait for others, and count how many there are at once."""

    scans = most = 0

    async def scan(self, space: str, span: Span, **options: Any) -> Page:
        self.scans += 1
        self.most = max(self.most, self.scans)
        for _ in range(5):
            await asyncio.sleep(0)
        self.scans -= 1
        return await super().scan(space, span, **options)


def test_who_asks_for_many_lists_at_once_has_them_a_few_at_a_time(tmp_path: Path) -> None:
    """On an engine that is waited for, all of them grew side by side: a thousand, which a burst allows, to 8 MiB each."""

    async def scenario() -> None:
        engine = Slow()
        async with asked(tmp_path, engine) as ask:
            paths = ["/configs/notes", "/scene-activity/top"] * 10
            answers = await asyncio.gather(*(ask("GET", path, customer="12345") for path in paths))
        assert {answer.status for answer in answers} == {200}
        assert engine.most == LISTS_AT_ONCE_MAX

    asyncio.run(scenario())
