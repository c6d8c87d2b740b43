"""MediaCMS servers as they are, and servers that lie, repeat, drip, nest and never end."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

from keyhouse_playlist.catalog.mediacms import DETAILS_AT_ONCE, MediaCms
from keyhouse_playlist.catalog.refresh import Refresh
from keyhouse_playlist.catalog.tables import CatalogItem, MediaCatalog
from keyhouse_playlist.errors import CatalogSourceError, RefreshRunningError
from keyhouse_playlist.limits import (
    ADDRESS_CHARS_MAX,
    CATEGORY_CHARS_MAX,
    ITEM_CATEGORIES_MAX,
    MEDIACMS_RESPONSE_BYTES_MAX,
    TITLE_CHARS_MAX,
)
from keyhouse_playlist.schema import CURRENT
from systems.playlist.tests.support.mediacms import details, listed, mediacms
from systems.playlist.tests.support.service import fill, item, playlist_service

Respond = Callable[[httpx.Request], httpx.Response]


async def no_sleep(_: float) -> None:
    return None


def source(respond: Any, **options: Any) -> MediaCms:
    transport = httpx.MockTransport(respond)
    return MediaCms("https://cms", transport=transport, sleep=no_sleep, **options)


async def read(source: MediaCms) -> list[CatalogItem]:
    return [each async for chunk, _ in source.items() for each in chunk]


def page_of(request: httpx.Request) -> int:
    """Return the page that a request asks for; 0: the details of a medium."""
    return int(request.url.params.get("page", 0))


def page(media: list[Any], **others: Any) -> httpx.Response:
    return httpx.Response(200, json={"count": len(media), "next": None, "results": media, **others})


# MediaCMS as it is


def test_a_mediacms_gives_categories_of_details_and_no_images_or_pdfs(tmp_path: Path) -> None:
    """The list's serializer has no categories: all were empty. 48 of 120 media were images and
    PDFs, which nobody can play."""

    async def work() -> None:
        with mediacms(120) as cms:
            cms.types = ("video", "audio", "image", "pdf", "")
            cms.gone = {5}
            items = await read(MediaCms(cms.url))
        assert [each.video_id for each in items] == [
            f"t{number}" for number in range(120) if number % 5 < 2 and number != 5
        ]
        assert {tuple(each.categories) for each in items} == {("Horror",), ("Comedy",)}
        assert all(each.duration_seconds == 60 for each in items)
        assert items[0].thumbnail_url == f"{cms.url}/media/0.jpg"

    asyncio.run(work())


def test_details_are_fetched_some_at_once_and_once_each() -> None:
    running = most = 0
    asked: list[str] = []

    async def respond(request: httpx.Request) -> httpx.Response:
        nonlocal running, most
        if page_of(request):
            return page([listed(number) for number in range(40)])
        asked.append(request.url.path)
        running += 1
        most = max(most, running)
        for _ in range(5):
            await asyncio.sleep(0)
        running -= 1
        return httpx.Response(200, json=details(1))

    asyncio.run(read(source(respond)))
    assert len(asked) == len(set(asked)) == 40
    assert most == DETAILS_AT_ONCE


def test_a_list_with_categories_needs_no_details() -> None:
    asked: list[int] = []

    def respond(request: httpx.Request) -> httpx.Response:
        asked.append(page_of(request))
        return page([{**listed(1), "categories_info": [{"title": "Horror"}]}])

    assert [each.categories for each in asyncio.run(read(source(respond)))] == [["Horror"]]
    assert asked == [1]


def test_a_private_medium_has_no_categories_and_a_failing_one_fails_the_refresh() -> None:
    def answering(status: int) -> Respond:
        def respond(request: httpx.Request) -> httpx.Response:
            return page([listed(1)]) if page_of(request) else httpx.Response(status)

        return respond

    assert [each.categories for each in asyncio.run(read(source(answering(401))))] == [[]]
    for status in (301, 418, 500):
        with pytest.raises(CatalogSourceError) as caught:
            asyncio.run(read(source(answering(status))))
        assert caught.value.fields["reason"] == f"status {status}"


# Lists that lie

following = "https://cms/api/v1/media?page=2"


def repeats(request: httpx.Request) -> httpx.Response:
    return page([listed(number) for number in range(5)], next=following)


def one_new_medium_forever(request: httpx.Request) -> httpx.Response:
    number = page_of(request)
    media = [{**listed(each), "media_type": "image"} for each in (*range(999), 999 + number)]
    return page(media, next=following)


def new_media_forever(request: httpx.Request) -> httpx.Response:
    first = page_of(request) * 1_000
    media = [{"friendly_token": f"t{first + each}", "title": ""} for each in range(1_000)]
    return page(media, count=5, next=following)


def sends_all_at_once(request: httpx.Request) -> httpx.Response:
    """99,000 media of one page, with their categories, held the event loop for 0.8 seconds."""
    medium = {"title": "t", "media_type": "video", "categories_info": []}
    return page([{"friendly_token": f"t{number}", **medium} for number in range(99_000)])


def empty_forever(request: httpx.Request) -> httpx.Response:
    return page([], count=5, next=following)


def promises_more(request: httpx.Request) -> httpx.Response:
    return page([listed(1)], count=2**70)


def fails_forever(request: httpx.Request) -> httpx.Response:
    return httpx.Response(503)


def nests(request: httpx.Request) -> httpx.Response:
    return httpx.Response(200, content=b'{"results":' + b"[" * 100_000)


def nests_in_details(request: httpx.Request) -> httpx.Response:
    if page_of(request):
        return page([listed(1)])
    nested = b"[" * 100_000 + b"]" * 100_000
    return httpx.Response(200, content=b'{"categories_info":[{"title":' + nested + b"}]}")


def sends_many_values(request: httpx.Request) -> httpx.Response:
    """Ten million lists in the details of a medium held the event loop for 1.3 seconds."""
    if page_of(request):
        return page([listed(1)])
    lists = b"[]," * 1_000_000 + b"[]"
    return httpx.Response(200, content=b'{"categories_info":[{"a":[' + lists + b"]}]}")


def sends_too_much(request: httpx.Request) -> httpx.Response:
    return httpx.Response(200, content=b" " * (MEDIACMS_RESPONSE_BYTES_MAX + 1))


def is_not_utf8(request: httpx.Request) -> httpx.Response:
    return httpx.Response(200, content=b'{"results":[{"friendly_token":"\xff","title":""}]}')


def is_another_server(request: httpx.Request) -> httpx.Response:
    return httpx.Response(200, content=b"<!doctype html>")


def redirects(request: httpx.Request) -> httpx.Response:
    return httpx.Response(302, headers={"Location": "http://169.254.169.254/"})


def is_badly_compressed(request: httpx.Request) -> httpx.Response:
    return httpx.Response(200, headers={"Content-Encoding": "gzip"}, stream=_Bytes(b"no gzip"))


class _Bytes(httpx.AsyncByteStream):
    def __init__(self, data: bytes) -> None:
        self._data = data

    async def __aiter__(self) -> AsyncIterator[bytes]:
        yield self._data


HOSTILE: list[Respond] = [
    repeats,
    one_new_medium_forever,
    new_media_forever,
    sends_all_at_once,
    empty_forever,
    promises_more,
    fails_forever,
    nests,
    nests_in_details,
    sends_many_values,
    sends_too_much,
    is_not_utf8,
    is_another_server,
    redirects,
    is_badly_compressed,
]


@pytest.mark.parametrize("respond", HOSTILE, ids=lambda each: each.__name__)
def test_a_refresh_from_a_hostile_mediacms_ends_with_a_named_error(
    tmp_path: Path, respond: Respond
) -> None:
    """A list that repeated its page was read forever, and later refreshes waited behind it."""

    async def work() -> None:
        fill(tmp_path, [item("a", "A")])
        async with playlist_service(tmp_path) as service:
            refresh = Refresh(
                MediaCatalog(tmp_path / "catalog.sqlite3"), service.stores, asyncio.to_thread, None
            )
            await refresh.prepare()
            before = await service.stores.snapshots.get(CURRENT)
            with pytest.raises(CatalogSourceError) as caught:
                await refresh.refresh(source(respond))
            assert caught.value.fields
            assert await service.stores.snapshots.get(CURRENT) == before
            assert [path.name for path in tmp_path.glob("catalog*")] == ["catalog.sqlite3"]

            def well(request: httpx.Request) -> httpx.Response:
                return page([listed(1)]) if page_of(request) else httpx.Response(404)

            assert (await refresh.refresh(source(well), allow_empty=True)).item_count == 0

    asyncio.run(work())


# Every member of the serializers, with every hostile value

VALUES: list[Any] = [
    None,
    True,
    -1,
    2**31,
    2**64,
    10**400,
    1e308,
    "",
    " ",
    "\x00",
    "\u202e",
    "\ud800",
    "../../x",
    "//[",
    "javascript:alert(1)",
    "x" * (max(ADDRESS_CHARS_MAX, TITLE_CHARS_MAX) + 1),
    "\u0301" * 5_000,
    [],
    {},
    [None],
    [{}],
    [{"title": None}],
    [{"title": 5}],
    [{"title": "x" * (CATEGORY_CHARS_MAX + 1)}],
    [{"title": str(number)} for number in range(ITEM_CATEGORIES_MAX + 1)],
    [[[[]]]],
]


def test_every_member_of_a_medium_may_be_hostile() -> None:
    """The result is items that are valid, or an error that names the medium or the member."""
    outcomes = {"items": 0, "errors": 0}

    async def work(where: str, member: str, value: Any) -> None:
        def respond(request: httpx.Request) -> httpx.Response:
            parts: dict[str, Any] = {"page": {"count": 1, "next": None}, "list": listed(1)}
            parts["details"] = details(1)
            parts[where] = {**parts[where], member: value}
            first = [parts["list"]] if parts["page"].get("results") is None else None
            body = {"results": first, **parts["page"]} if page_of(request) else parts["details"]
            return httpx.Response(200, content=json.dumps(body).encode())

        try:
            items = await read(source(respond))
        except CatalogSourceError as error:
            outcomes["errors"] += 1
            assert error.fields["reason"]
        else:
            outcomes["items"] += 1
            assert all(len(each.title) <= TITLE_CHARS_MAX for each in items)

    for where, known in (
        ("page", {"results": 0, "count": 0, "next": 0, "previous": 0}),
        ("list", listed(1)),
        ("details", details(1)),
    ):
        for member in known:
            for value in VALUES:
                asyncio.run(work(where, member, value))
    assert min(outcomes.values()) > 100, outcomes


# Time


def test_a_mediacms_that_is_slow_forever_ends_at_the_limit_of_time() -> None:
    async def respond(request: httpx.Request) -> httpx.Response:
        await asyncio.Event().wait()
        raise AssertionError

    with pytest.raises(CatalogSourceError) as caught:
        asyncio.run(read(source(respond, seconds_max=0.05)))
    assert caught.value.fields["reason"] == "not read within 0.05 seconds"


def test_a_second_refresh_is_rejected_at_once_and_a_cancelled_one_blocks_nobody(
    tmp_path: Path,
) -> None:
    """It waited behind the first one, which never ended."""

    async def work() -> None:
        fill(tmp_path, [item("a", "A")])
        async with playlist_service(tmp_path) as service:
            refresh = Refresh(
                MediaCatalog(tmp_path / "catalog.sqlite3"), service.stores, asyncio.to_thread, None
            )
            asked = asyncio.Event()

            async def hangs(request: httpx.Request) -> httpx.Response:
                if page_of(request) == 2:
                    asked.set()
                    await asyncio.Event().wait()
                if not page_of(request):
                    return httpx.Response(200, json=details(1))
                return page([listed(1)], next=following)

            first = asyncio.ensure_future(refresh.refresh(source(hangs)))
            await asked.wait()
            with pytest.raises(RefreshRunningError):
                await refresh.refresh(source(repeats))
            first.cancel()
            await asyncio.gather(first, return_exceptions=True)
            assert first.cancelled()
            assert [path.name for path in tmp_path.glob("catalog*")] == ["catalog.sqlite3"]
            with pytest.raises(CatalogSourceError):
                await refresh.refresh(source(repeats))

    asyncio.run(work())


def test_an_error_of_mediacms_shows_no_password_of_its_address() -> None:
    def respond(request: httpx.Request) -> httpx.Response:
        return httpx.Response(500)

    async def work() -> None:
        transport = httpx.MockTransport(respond)
        url = "https://ada:PASSWORD@cms.example/x"
        source = MediaCms(url, "s", transport=transport, sleep=no_sleep)
        with pytest.raises(CatalogSourceError) as failed:
            async for _ in source.items():
                pass
        assert failed.value.fields["url"] == "https://cms.example/x"
        assert "PASSWORD" not in str(failed.value)

    asyncio.run(work())
