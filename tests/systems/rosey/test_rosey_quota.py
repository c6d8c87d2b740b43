"""A quota is exact within one process, whatever a census counts while others write; and an answer fits."""

import asyncio
import json
import random
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from keyhouse import open_engine
from keyhouse.engine import Engine
from keyhouse.engines.memory import MemoryEngine
from keyhouse.errors import KeyhouseError, LimitError, QuotaError, UnknownOutcomeError
from keyhouse.systems.rosey import requests as asked
from keyhouse.systems.rosey.census import Census
from keyhouse.systems.rosey.figures import PLUGINS_MAX, Figures
from keyhouse.systems.rosey.journal import Journal
from keyhouse.systems.rosey.plugin import Plugin
from keyhouse.systems.rosey.quota import Quota, Room, measure
from keyhouse.testing.faults import Fault, FaultyEngine, fail, meanwhile

QUOTA = 10


class Desk:
    """A plugin with a quota of ten keys, and the census that counts it, on an engine around the file's."""

    def __init__(self, engine: Engine, faults: tuple[Fault, ...], yields: bool) -> None:
        self.engine = FaultyEngine(engine, *faults, yields=yields)
        self.plugin = Plugin("trivia", self.engine, Quota(QUOTA, 0), 1_000_000)
        self.census = Census(
            self.engine, Figures(()), Journal(100), {"trivia": self.plugin.account}.get
        )

    async def put(self, *keys: str) -> None:
        for key in keys:
            await self.plugin.set(asked.Set(key, 1))

    @property
    def kept(self) -> int | None:
        assert self.plugin.account is not None
        return None if self.plugin.account.kept is None else self.plugin.account.kept.keys

    async def stored(self) -> int:
        return (await measure(self.plugin.store)).keys


def at_desk(
    folder: Path,
    story: Callable[[Desk], Awaitable[None]],
    *,
    faults: Callable[[list[Desk]], tuple[Fault, ...]] = lambda _: (),
    yields: bool = False,
) -> None:
    async def run() -> None:
        engine = await open_engine(f"sqlite:{folder}/rosey.db?layout=rosey")
        desks: list[Desk] = []
        desks.append(Desk(engine, faults(desks), yields))
        try:
            await story(desks[0])
        finally:
            await engine.close()

    asyncio.run(run())


def test_a_write_that_commits_while_a_census_counts_is_not_forgotten(tmp_path: Path) -> None:
    """The census put its own count in place of what was known, and so forgot what was written behind its back: the quota
    could then be passed by as much."""

    async def story(desk: Desk) -> None:
        await desk.put(*(f"k{number}" for number in range(QUOTA - 1)))
        await desk.census.take()
        assert desk.kept == QUOTA
        with pytest.raises(QuotaError):
            await desk.put("one-more")
        assert await desk.stored() == QUOTA

    count_of_the_census = 2  # the first is of the first write
    at_desk(
        tmp_path,
        story,
        faults=lambda desks: (
            meanwhile(
                count_of_the_census, lambda: desks[0].put("meanwhile"), call="scan", after=True
            ),
        ),
    )


def test_a_write_that_a_census_has_seen_before_its_caller_was_told_counts_once(
    tmp_path: Path,
) -> None:
    async def story(desk: Desk) -> None:
        await desk.put("a", "b", "c")
        assert (desk.kept, await desk.stored()) == (3, 3)

    at_desk(
        tmp_path,
        story,
        faults=lambda desks: (
            meanwhile(3, lambda: desks[0].census.take(), call="commit", after=True),
        ),
    )


def test_a_write_of_which_nobody_knows_the_outcome_takes_up_room_until_the_next_census(
    tmp_path: Path,
) -> None:
    async def story(desk: Desk) -> None:
        await desk.put("a")
        with pytest.raises(UnknownOutcomeError):
            await desk.put("b")
        assert desk.kept == 2
        with pytest.raises(UnknownOutcomeError):
            await desk.plugin.delete(asked.Delete("a"))
        assert desk.kept == 2, "what may have become free is not given away"
        await desk.census.take()
        assert desk.kept == await desk.stored() == 1

    at_desk(
        tmp_path,
        story,
        faults=lambda _: (
            fail(2, UnknownOutcomeError, after=True),
            fail(3, UnknownOutcomeError, after=True),
        ),
    )


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_writers_and_censuses_at_once_never_pass_it_and_lose_count_of_nothing(
    tmp_path: Path, seed: int
) -> None:
    draw = random.Random(seed)

    async def story(desk: Desk) -> None:
        most = 0

        async def write() -> None:
            nonlocal most
            for _ in range(15):
                key = f"k{draw.randrange(2 * QUOTA)}"
                try:
                    if draw.random() < 0.4:
                        await desk.plugin.delete(asked.Delete(key))
                    else:
                        await desk.put(key)
                except QuotaError:
                    pass
                most = max(most, await desk.stored())

        async def count() -> None:
            for _ in range(20):
                await desk.census.take()

        await asyncio.gather(count(), *(write() for _ in range(8)))
        assert most == QUOTA, "the quota was reached, and never passed"
        assert desk.kept == await desk.stored()

    at_desk(tmp_path, story, yields=True)


def test_plugins_beyond_the_number_are_added_up_in_the_metrics() -> None:
    """Each of them replaced the one before it, so that `(others)` told of one plugin only."""
    figures = Figures(())
    figures.count({f"p{number:05d}": Room(2, 10) for number in range(PLUGINS_MAX + 3)})
    assert figures.stored["(others)"] == (6, 30)


def test_a_census_that_fails_leaves_what_was_known(tmp_path: Path) -> None:
    async def story(desk: Desk) -> None:
        await desk.put("a")
        await desk.census.take()
        assert (desk.kept, desk.census.taken_at) == (1, None)
        with pytest.raises(KeyhouseError):
            await desk.census.count("trivia")

    at_desk(
        tmp_path,
        story,
        faults=lambda _: (
            fail(2, UnknownOutcomeError, call="scan"),
            fail(3, UnknownOutcomeError, call="scan"),
        ),
    )


def test_a_page_into_which_nothing_fits_is_refused() -> None:
    """It was empty and had more behind it: whoever asks for pages until the last one asked without end."""

    async def run() -> None:
        plugin = Plugin("trivia", MemoryEngine(), Quota(0, 0), 1_000)
        await plugin.set(asked.Set("a", "x" * 400))
        await plugin.set(asked.Set("k" * 255, "x" * 500))
        first = json.loads(await plugin.scan(asked.Scan()))
        assert first["count"] == 1 and first["truncated"]
        with pytest.raises(LimitError, match="reply_bytes_max"):
            await plugin.scan(asked.Scan(cursor=first["cursor"]))
        assert json.loads(await plugin.list(asked.List()))["count"] == 2
        with pytest.raises(LimitError, match="reply_bytes_max"):
            await Plugin("trivia", plugin.store.engine, Quota(0, 0), 600).list(
                asked.List(prefix="k")
            )

    asyncio.run(run())
