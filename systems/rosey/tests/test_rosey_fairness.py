"""Many requests of one plugin: rates, and writes of one key that share a commit."""

import asyncio
from pathlib import Path
from typing import Any

from keyhouse.engine import Batch
from systems.rosey.tests.support.harness import Harness, living


def test_bodies_that_are_not_json_count_towards_the_rate(tmp_path: Path) -> None:
    async def story(harness: Harness) -> None:
        answers = [await harness.ask("p.set", b"not JSON") for _ in range(4)]
        assert [answer["error_code"] for answer in answers] == [
            *["INVALID_JSON"] * 3,
            "RATE_LIMITED",
        ]

    living("sqlite", tmp_path, rate_per_second=1, rate_burst=3)(story)


def test_writes_of_one_key_that_wait_share_commits_and_have_their_own_results(
    tmp_path: Path,
) -> None:
    """Each waited for the sync of the one before it: 65,000 took 24 seconds."""

    async def story(harness: Harness) -> None:
        commits = 0
        commit = harness.engine.commit

        async def counted(space: str, batch: Batch) -> int | None:
            nonlocal commits
            commits += 1
            return await commit(space, batch)

        harness.engine.commit = counted  # type: ignore[method-assign]
        requests: list[tuple[str, dict[str, Any]]] = []
        for number in range(50):
            requests += [
                ("p.set", {"key": "k", "value": number}),
                ("p.incr", {"key": "k"}),
                ("p.set", {"key": "text", "value": "x"}),
                ("p.incr", {"key": "text"}),
            ]
        requests += [("p.delete", {"key": "k"}), ("p.delete", {"key": "k"})]
        answers = await asyncio.gather(*(harness.ask(*request) for request in requests))
        assert [answer["value"] for answer in answers[1:200:4]] == list(range(1, 51))
        assert {answer["error_code"] for answer in answers[3:200:4]} == {"CONFLICT"}
        assert [answer["deleted"] for answer in answers[-2:]] == [True, False]
        assert commits < 20

    living("sqlite", tmp_path)(story)


def test_a_read_between_two_writes_of_a_key_sees_only_the_first(tmp_path: Path) -> None:
    async def story(harness: Harness) -> None:
        requests: list[tuple[str, dict[str, Any]]] = []
        for number in range(20):
            requests += [("p.set", {"key": "k", "value": number}), ("p.get", {"key": "k"})]
        answers = await asyncio.gather(*(harness.ask(*request) for request in requests))
        assert [answer["value"] for answer in answers[1::2]] == list(range(20))

    living("sqlite", tmp_path)(story)


def test_a_compare_and_set_never_shares_its_revision_with_a_later_write(tmp_path: Path) -> None:
    """Its caller could otherwise replace a value that it has not seen."""

    async def story(harness: Harness) -> None:
        answers = await asyncio.gather(
            harness.ask("p.set", {"key": "k", "value": "a"}),
            harness.ask("p.set", {"key": "k", "value": "b"}),
            harness.ask("p.delete", {"key": "k"}),
            harness.ask("p.cas", {"key": "k", "value": "mine", "revision": None}),
            harness.ask("p.set", {"key": "k", "value": "other"}),
            harness.ask("p.set", {"key": "k", "value": "another"}),
        )
        assert all(answer["success"] for answer in answers)
        stale = {"key": "k", "value": "lost", "revision": answers[3]["revision"]}
        assert (await harness.ask("p.cas", stale))["error_code"] == "CONFLICT"

    living("sqlite", tmp_path)(story)


def test_a_quota_rejects_a_write_beyond_it_also_if_the_next_one_is_within_it(
    tmp_path: Path,
) -> None:
    async def story(harness: Harness) -> None:
        sizes = [10, 20, 500, 30, 500, 40]
        answers = await asyncio.gather(
            *(harness.ask("p.set", {"key": "k", "value": "x" * size}) for size in sizes)
        )
        assert [answer["success"] for answer in answers] == [size < 500 for size in sizes]
        assert len((await harness.ask("p.get", {"key": "k"}))["value"]) == 40

    living("sqlite", tmp_path, quota_bytes=100)(story)
