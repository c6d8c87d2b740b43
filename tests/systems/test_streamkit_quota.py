"""A customer's quota, where a write commits while what the customer keeps is being measured."""

import asyncio

import pytest

from keyhouse import ManualClock
from keyhouse.engines.memory import MemoryEngine
from keyhouse.errors import QuotaError
from keyhouse.systems.streamkit import quota
from keyhouse.systems.streamkit.quota import Quota, Room, Size

ONE = Size(1, 10)


def test_a_write_that_commits_behind_the_measurements_back_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """It was lost: what the scan had found replaced what was known, though the scan had passed the row's place before it
    was written. The next writer then had room that there was not."""

    async def scenario() -> None:
        kept = 1
        scanned = asyncio.Event()
        scanned.set()

        async def measured(*_: object) -> Size:
            found = Size(kept, 10 * kept)
            await scanned.wait()
            return found

        async def write(room: Room) -> None:
            nonlocal kept
            room.reserve(ONE)
            await committing.wait()
            kept += 1

        monkeypatch.setattr(quota, "measured", measured)
        clock = ManualClock(1_700_000_000_000)
        customer = Quota(MemoryEngine(clock=clock), "12345", Size(2, 1_000))
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
