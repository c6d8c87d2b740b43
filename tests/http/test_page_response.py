"""Long pages are put together in steps, and have the bytes of one that is encoded at once."""

import asyncio
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from keyhouse.http import Response, Route, page_response
from keyhouse.service.spec import ServiceSpec
from tests.http.support.real_server import run, serving


class Page(msgspec.Struct):
    count: int
    items: list[Any]
    note: str = 'a "quoted" \0 note'


def page_of(count: int, size: int) -> Page:
    item = msgspec.json.encode({"text": "é" * size})
    return Page(count, [msgspec.Raw(item)] * count)


@given(st.lists(st.integers(0, 90_000), max_size=40))
def test_a_page_in_steps_has_the_bytes_of_one_step(sizes: list[int]) -> None:
    page = Page(1, [msgspec.Raw(b'"%b"' % (b"x" * size)) for size in sizes])
    body: Any = asyncio.run(page_response(page, "items")).body
    sent = bytes(body) if isinstance(body, bytearray) else msgspec.json.encode(body)
    assert sent == msgspec.json.encode(page)


@pytest.mark.parametrize(("count", "size"), [(1, 200_000), (20_000, 200), (20, 180_000)])
def test_a_long_page_arrives_whole_and_others_run_between_its_steps(count: int, size: int) -> None:
    page = page_of(count, size)
    turns = 0

    async def listed() -> Response[Page]:
        """List the items."""
        return await page_response(page, "items")

    async def count_turns() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    async def scenario() -> None:
        spec = ServiceSpec(name="x", routes=[Route(method="GET", path="/list", handler=listed)])
        async with serving(spec) as client:
            reply = await client.get("/list")
            assert reply.headers["content-type"] == "application/json"
            assert reply.content == msgspec.json.encode(page)
            assert (await client.head("/list")).content == b""
        counting = asyncio.create_task(count_turns())
        before = turns
        await page_response(page, "items")
        steps = len(msgspec.json.encode(page)) // 2**20
        assert turns - before >= steps
        counting.cancel()

    run(scenario)
