"""Concurrent callers: no update is lost, and one caller's failure does not affect another."""

import asyncio

from keyhouse.engine import Batch, Check, Engine, Put
from keyhouse.errors import CounterError
from keyhouse.testing.conformance.harness import SPACE, Harness, scenario

TASKS = 64


class ConcurrencyTests:
    @scenario()
    async def test_no_add_is_lost(self, harness: Harness) -> None:
        async def add(number: int) -> None:
            for _ in range(5):
                await harness.commit(
                    adds={"all": 1, f"of {number % 8}": 1}, puts={f"p{number}": b"1"}
                )

        await asyncio.gather(*(add(number) for number in range(TASKS)))
        assert await harness.value("all") == b"%d" % (TASKS * 5)
        for number in range(8):
            assert await harness.value(f"of {number}") == b"%d" % (TASKS * 5 // 8)

    @scenario()
    async def test_no_compare_and_set_is_lost(self, harness: Harness) -> None:
        async def increment(rounds: int) -> None:
            for _ in range(rounds):
                while not await _incremented(harness.engine):
                    await asyncio.sleep(0)

        await harness.put("n", value=b"0")
        await asyncio.gather(*(increment(2) for _ in range(TASKS // 4)))
        assert await harness.value("n") == b"%d" % (TASKS // 4 * 2)

    @scenario()
    async def test_one_of_many_concurrent_creations_succeeds(self, harness: Harness) -> None:
        for name in ("a", "b", "c"):
            creations = (
                harness.commit(checks={name: None}, puts={name: b"%d" % number})
                for number in range(TASKS)
            )
            revisions = await asyncio.gather(*creations)
            (winner,) = (
                number for number, revision in enumerate(revisions) if revision is not None
            )
            assert await harness.value(name) == b"%d" % winner

    @scenario()
    async def test_concurrent_commits_have_different_revisions(self, harness: Harness) -> None:
        revisions = await asyncio.gather(*(harness.put(f"k{number}") for number in range(TASKS)))
        assert len(set(revisions)) == TASKS
        for number, revision in enumerate(revisions):
            row = await harness.row(f"k{number}")
            assert row is not None
            assert row.revision == revision

    @scenario()
    async def test_spaces_are_written_concurrently(self, harness: Harness) -> None:
        spaces = [f"s{number}" for number in range(8)]
        await asyncio.gather(
            *(harness.commit(space=space, adds={"n": 1}) for _ in range(10) for space in spaces)
        )
        assert [await harness.value("n", space=space) for space in spaces] == [b"10"] * 8

    @scenario()
    async def test_a_rejected_commit_does_not_affect_concurrent_ones(
        self, harness: Harness
    ) -> None:
        await harness.put("text", value=b'"x"')
        commits = []
        for number in range(TASKS):
            match number % 4:
                case 0:
                    commits.append(
                        harness.commit(puts={f"refused {number}": b"1"}, adds={"text": 1})
                    )
                case 1:
                    commits.append(
                        harness.commit(checks={"text": None}, puts={f"lost {number}": b"1"})
                    )
                case _:
                    commits.append(harness.commit(puts={f"kept {number}": b"1"}, adds={"n": 1}))
        answers = await asyncio.gather(*commits, return_exceptions=True)
        assert all(isinstance(answer, CounterError) for answer in answers[0::4])
        assert all(answer is None for answer in answers[1::4])
        assert all(isinstance(answer, int) for answer in answers[2::4] + answers[3::4])
        keys = await harness.keys()
        assert len([key for key in keys if key.startswith("kept")]) == TASKS // 2
        assert not [key for key in keys if key.startswith(("refused", "lost"))]
        assert await harness.value("n") == b"%d" % (TASKS // 2)

    @scenario()
    async def test_a_cancelled_commit_is_all_or_nothing_and_others_continue(
        self, harness: Harness
    ) -> None:
        for yields in range(6):
            tasks = [
                asyncio.ensure_future(
                    harness.commit(puts={f"{yields}/{number}/{part}": b"1" for part in "ab"})
                )
                for number in range(TASKS)
            ]
            for _ in range(yields):
                await asyncio.sleep(0)
            for task in tasks[::2]:
                task.cancel()
            answers = await asyncio.gather(*tasks, return_exceptions=True)
            await harness.put("settled")
            keys = set(await harness.keys())
            for number, answer in enumerate(answers):
                parts = [f"{yields}/{number}/{part}" in keys for part in "ab"]
                assert parts[0] == parts[1]
                assert isinstance(answer, int) or (
                    number % 2 == 0 and isinstance(answer, asyncio.CancelledError)
                )
                assert parts[0] or not isinstance(answer, int)

    @scenario()
    async def test_a_cancelled_commit_repeated_with_its_id_is_applied_once(
        self, harness: Harness
    ) -> None:
        """A cancelled caller does not know the outcome, as after an `UnknownOutcomeError`."""
        await harness.put("n", value=b"0")
        ids = []
        for moment, pause in enumerate([0, 0, 0.0003, 0.001, 0.003, 0.01]):
            names = [f"{moment} of {number}" for number in range(4)]
            tasks = [
                asyncio.ensure_future(harness.commit(adds={"n": 1}, puts={name: b"1"}, id=name))
                for name in names
            ]
            for _ in range(moment):
                await asyncio.sleep(pause)
            for task in tasks:
                task.cancel()
            again = asyncio.gather(
                *(harness.commit(adds={"n": 1}, puts={name: b"1"}, id=name) for name in names)
            )
            first, second = await asyncio.gather(*tasks, return_exceptions=True), await again
            for before, after in zip(first, second, strict=True):
                assert before == after or isinstance(before, asyncio.CancelledError)
            ids += names
        assert await harness.value("n") == b"%d" % len(ids)
        assert await harness.keys() == sorted([*ids, "n"])

    @scenario()
    async def test_an_engine_works_after_all_callers_were_cancelled(self, harness: Harness) -> None:
        task = asyncio.ensure_future(harness.put("a"))
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await harness.put("b")
        assert await harness.value("b") == b"1"

    @scenario(shared=True)
    async def test_two_engines_on_one_store_lose_no_update(self, harness: Harness) -> None:
        other = await harness.another()
        try:
            await harness.put("n", value=b"0")

            async def increment(engine: Engine) -> None:
                while not await _incremented(engine):
                    await asyncio.sleep(0)

            await asyncio.gather(
                *(increment(engine) for _ in range(10) for engine in (harness.engine, other))
            )
            assert await harness.value("n") == b"20"
        finally:
            await other.close()


async def _incremented(engine: Engine) -> bool:
    (row,) = await engine.read(SPACE, ["n"])
    assert row is not None
    batch = Batch(
        checks=(Check("n", row.revision),), puts=(Put("n", b"%d" % (int(row.value) + 1)),)
    )
    return await engine.commit(SPACE, batch) is not None
