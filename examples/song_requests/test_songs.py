"""The rules of the song requests, with a clock that the test moves: `pytest test_songs.py`."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from songs import (
    COOLING,
    NOW,
    POINTS,
    REQUEST,
    SONG,
    SONGS,
    CooldownError,
    Song,
    SongRequest,
    request_song,
)

from keyhouse import ManualClock, Store, open_engine
from keyhouse.errors import NotFoundError, UniqueError


@asynccontextmanager
async def channel() -> AsyncIterator[tuple[Store, ManualClock]]:
    clock = ManualClock()  # starts at 2026-01-01T00:00:00Z
    async with open_engine("memory:", clock=clock) as engine:
        store = Store(SONGS, engine, "channel")
        await store.put(SONG, Song(id="1", title="Blue Moon"))
        yield store, clock


def test_a_request_is_queued_with_points_and_a_cooldown() -> None:
    async def scenario() -> None:
        async with channel() as (store, clock):
            asked = SongRequest(user="ada", title="blue moon")
            assert (await store.call(request_song, asked)).points == 10
            clock.advance(seconds=20)
            with pytest.raises(CooldownError) as raised:
                await store.call(request_song, asked)
            assert raised.value.fields == {"seconds": 40}
            clock.advance(seconds=40)
            assert (await store.call(request_song, asked)).points == 20
            queue = [entry.record.user async for entry in store.scan(REQUEST)]
            assert queue == ["ada", "ada"]

    asyncio.run(scenario())


def test_points_start_again_each_day() -> None:
    async def scenario() -> None:
        async with channel() as (store, clock):
            asked = SongRequest(user="ada", title="Blue Moon")
            await store.call(request_song, asked)
            clock.advance(seconds=24 * 3_600)
            assert (await store.call(request_song, asked)).points == 10
            assert await store.get(POINTS, day="2026-01-01", user="ada") is not None
            clock.advance(seconds=24 * 3_600)
            assert await store.get(POINTS, day="2026-01-01", user="ada") is None

    asyncio.run(scenario())


def test_a_request_that_fails_writes_nothing() -> None:
    async def scenario() -> None:
        async with channel() as (store, _):
            with pytest.raises(NotFoundError):
                await store.call(request_song, SongRequest(user="ada", title="Red Moon"))
            assert await store.get(COOLING, user="ada") is None
            with pytest.raises(UniqueError):
                await store.put(SONG, Song(id="2", title="BLUE MOON"))

    asyncio.run(scenario())


def test_one_of_two_requests_at_the_same_moment_succeeds() -> None:
    async def scenario() -> None:
        async with channel() as (store, clock):
            asked = SongRequest(user="ada", title="Blue Moon")
            calls = [store.call(request_song, asked) for _ in range(5)]
            done = await asyncio.gather(*calls, return_exceptions=True)
            assert sum(isinstance(each, CooldownError) for each in done) == 4
            await store.put(NOW, "Blue Moon", ttl=180)
            clock.advance(seconds=180)
            assert await store.get(NOW) is None

    asyncio.run(scenario())
