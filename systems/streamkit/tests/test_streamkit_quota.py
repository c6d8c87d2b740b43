"""A customer's quota, and how much memory a customer may use at once."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from keyhouse import Store, verify
from keyhouse.engine import Batch, Page, Put, Span
from keyhouse.engines.memory import MemoryEngine
from keyhouse.errors import QuotaError, UnknownOutcomeError
from keyhouse.service.usage import Quota
from keyhouse.testing.faults import FaultyEngine, fail
from keyhouse_streamkit import configs
from keyhouse_streamkit.limits import LISTS_AT_ONCE_MAX, READABLE_ROWS_MAX
from keyhouse_streamkit.schema import CONFIGS, SCHEMAS
from keyhouse_streamkit.tenants import Customer
from systems.streamkit.tests.support.service import asked


def test_a_write_with_an_unknown_outcome_counts_towards_the_quota() -> None:
    """It counted as not written for five minutes, and with each one a customer exceeded the quota
    further."""

    async def scenario() -> None:
        note = {"title": "", "content": ""}
        engine = FaultyEngine(MemoryEngine(), fail(1, UnknownOutcomeError, after=True))
        customer = Customer("12345", engine, Quota(1, 1_000))
        with pytest.raises(UnknownOutcomeError):
            await configs.create(customer, "notes", note)
        with pytest.raises(QuotaError):
            await configs.create(customer, "notes", note)

    asyncio.run(scenario())


class SlowScans(MemoryEngine):
    """An engine whose scans take several loop turns, and that counts the concurrent ones."""

    scans = most = 0

    async def scan(self, space: str, span: Span, **options: Any) -> Page:
        self.scans += 1
        self.most = max(self.most, self.scans)
        for _ in range(5):
            await asyncio.sleep(0)
        self.scans -= 1
        return await super().scan(space, span, **options)


def test_concurrent_lists_of_one_customer_are_built_a_few_at_a_time(tmp_path: Path) -> None:
    """All were built side by side: a thousand, which a burst allows, of up to 8 MiB each."""

    async def scenario() -> None:
        engine = SlowScans()
        async with asked(tmp_path, engine) as ask:
            paths = ["/configs/notes", "/scene-activity/top"] * 10
            answers = await asyncio.gather(*(ask("GET", path, customer="12345") for path in paths))
        assert {answer.status for answer in answers} == {200}
        assert engine.most == LISTS_AT_ONCE_MAX

    asyncio.run(scenario())


def test_a_row_of_another_program_ends_no_list(tmp_path: Path) -> None:
    """Text that is not JSON stood in the middle of the reply, so that no client could read it."""

    async def scenario() -> None:
        engine = MemoryEngine()
        rows = ("notes_bad", "notes_other", "scene_activity_bad")
        values = (b"not json", b'{"id":"other"}', b"[]")
        puts = tuple(
            Put(f"cust_12345_streamkit_{name}", value)
            for name, value in zip(rows, values, strict=True)
        )
        await engine.commit("12345", Batch(puts=puts))
        note = {"id": "good", "title": "", "content": ""}
        async with asked(tmp_path, engine) as ask:
            await ask("POST", "/configs/notes", note, customer="12345")
            await ask("POST", "/scene-activity/record", {"sceneName": "a"}, customer="12345")
            for query in ("", "?since=2020-01-01T00:00:00Z"):
                answer = await ask("GET", f"/configs/notes{query}", customer="12345")
                assert [each["id"] for each in answer.json["configs"]] == ["good"]
            top = await ask("GET", "/scene-activity/top", customer="12345")
            assert [each["sceneName"] for each in top.json["scenes"]] == ["a"]

    asyncio.run(scenario())


UNREADABLE = (b"not json", b"", b"\xff", b"[]", b"null", b'{"id":"bad"}', b'{"updatedAt":1}')


@pytest.mark.parametrize("category", CONFIGS)
def test_a_row_of_another_program_is_an_error_and_not_a_config(
    tmp_path: Path, category: str
) -> None:
    """A GET sent it as it was stored, with 200, where PUT and DELETE of it are errors."""

    async def scenario() -> None:
        engine = MemoryEngine()
        key = f"cust_12345_streamkit_{category}_bad"
        note = {"id": "bad", "title": "", "content": ""}
        async with asked(tmp_path, engine) as ask:
            if category == "notes":  # one that was readable before
                await ask("POST", "/configs/notes", note, customer="12345")
                assert (await ask("GET", "/configs/notes/bad", customer="12345")).status == 200
            for value in UNREADABLE:
                await engine.commit("12345", Batch(puts=(Put(key, value),)))
                for _ in range(2):
                    answer = await ask("GET", f"/configs/{category}/bad", customer="12345")
                    assert answer.status == 500 and "DATABASE_ERROR" in str(answer.json), value
                body = {**note, "name": "n"}
                path = f"/configs/{category}/bad"
                assert (await ask("PUT", path, body, customer="12345")).status in (422, 400, 500)
                assert (await ask("DELETE", path, customer="12345")).status == 500
                store = Store(SCHEMAS[0], engine, "12345")
                assert [each.kind async for each in verify(store)] == ["unreadable"], value

    asyncio.run(scenario())


def test_what_is_known_to_be_readable_is_bounded() -> None:
    async def scenario() -> None:
        customer = Customer("12345", MemoryEngine(), Quota(10_000, 10_000_000))
        for number in range(READABLE_ROWS_MAX + 5):
            note = {"id": f"n{number}", "title": "", "content": ""}
            await configs.create(customer, "notes", note)
            await configs.read(customer, "notes", f"n{number}")
        assert len(customer.readable) == 5

    asyncio.run(scenario())
