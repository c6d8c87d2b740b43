"""A MediaCMS as the source of the catalog: its list of media page by page, and the details of each.

Only what can be played is taken: media of the types video and audio. The list has no categories
and no time of the last change, so the details of each medium are fetched at every refresh, some at
once. A response that fails, or is cut short, is fetched again with growing pauses; if it keeps
failing, the refresh fails and the catalog stays.

Every page must list something new, and so a list that repeats ends. The number of pages, of media
and of bytes is limited, and so is the time of all of it. Media that move from one page to the next
while they are listed come twice and are taken once.
"""

import asyncio
import re
from collections.abc import Awaitable, Callable
from typing import Annotated, Any, Final, TypeVar
from urllib.parse import urljoin, urlsplit

import httpx
import msgspec
from msgspec import Meta

from keyhouse.advice import authorization
from keyhouse_playlist.catalog.refresh import Items
from keyhouse_playlist.catalog.tables import CatalogItem, check_item, is_web_address
from keyhouse_playlist.errors import CatalogFullError, CatalogSourceError
from keyhouse_playlist.limits import (
    CATALOG_ITEMS_MAX,
    MEDIACMS_PAGE_ITEMS_MAX,
    MEDIACMS_RESPONSE_BYTES_MAX,
    MEDIACMS_RESPONSE_SECONDS_MAX,
    MEDIACMS_RESPONSE_VALUES_MAX,
    MEDIACMS_SECONDS_MAX,
)
from keyhouse_playlist.names import printable_title, without_controls

__all__ = ["MediaCms"]

ATTEMPTS_MAX: Final = 5
PAUSE_SECONDS: Final = 0.5
DETAILS_AT_ONCE: Final = 8
"""Requests for details that run at the same time: a MediaCMS has some ten workers."""

PLAYED_TYPES: Final = frozenset({"video", "audio"})
"""The others are `image` and `pdf`, and empty until the medium was processed."""

_RETRIED: Final = frozenset({408, 425, 429, 500, 502, 503, 504})
_GONE: Final = frozenset({400, 404, 410})
"""Of details: MediaCMS answers 400 for a medium that does not exist."""
_PRIVATE: Final = frozenset({401, 403})

_token = re.compile(r"[A-Za-z0-9_-]+")

T = TypeVar("T")


class _Medium(msgspec.Struct):
    """A medium in the list. Some servers list categories there."""

    friendly_token: str
    title: str
    media_type: str | None = None
    duration: float | None = None
    thumbnail_url: str | None = None
    categories_info: list[dict[str, Any]] | None = None


class _Page(msgspec.Struct):
    results: Annotated[list[_Medium], Meta(max_length=MEDIACMS_PAGE_ITEMS_MAX)]
    count: int | None = None
    next: str | None = None


class _Details(msgspec.Struct):
    categories_info: list[dict[str, Any]] = []


class _TryAgainError(Exception):
    """A failure that may pass."""


class _StatusError(Exception):
    """A status that stays."""

    def __init__(self, status: int) -> None:
        super().__init__(f"status {status}")
        self.status = status


class MediaCms:
    """`transport`, `sleep` and `seconds_max` are for tests."""

    name = "mediacms"
    can_follow = True

    def __init__(
        self,
        url: str,
        token: str | None = None,
        *,
        transport: httpx.AsyncBaseTransport | None = None,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        seconds_max: float = MEDIACMS_SECONDS_MAX,
    ) -> None:
        self._url = url.rstrip("/")
        self._headers = {"Accept": "application/json"}
        if token is not None:
            self._headers["Authorization"] = authorization(token, "Token")
        self._transport = transport
        self._sleep = sleep
        self._seconds_max = seconds_max

    async def items(self) -> Items:
        """Iterate over the media, a page at a time. Raises CatalogSourceError if a page fails, or
        if the list does not end."""
        deadline = asyncio.get_running_loop().time() + self._seconds_max
        seen: set[str] = set()
        number = listed = taken = pages_max = 0
        async with httpx.AsyncClient(
            transport=self._transport,
            headers=self._headers,
            timeout=MEDIACMS_RESPONSE_SECONDS_MAX,
            follow_redirects=False,
        ) as client:
            while True:
                number += 1
                page = await self._page(client, number, deadline)
                pages_max = pages_max or CATALOG_ITEMS_MAX // max(1, len(page.results)) + 1
                media = {
                    each.friendly_token: each
                    for each in page.results
                    if each.friendly_token not in seen
                }
                seen.update(media)
                listed += len(page.results)
                if len(seen) > CATALOG_ITEMS_MAX:
                    raise CatalogFullError(
                        "The source has too many items.", limit=CATALOG_ITEMS_MAX
                    )
                items = await self._items(client, media, deadline)
                taken += len(items)
                total = None if page.count is None else page.count - len(seen) + taken
                yield items, total if total is not None and total >= taken else None
                if page.next is None:
                    break
                if not media:
                    raise self._failed("the list repeats its media", page=number)
                if number >= pages_max:
                    raise self._failed("the list does not end", page=number)
        if page.count is not None and listed < page.count:
            raise self._failed("the list ended early", page=number)

    async def _page(self, client: httpx.AsyncClient, number: int, deadline: float) -> _Page:
        try:
            return await self._fetched(client, f"media?page={number}", _Page, deadline)
        except _StatusError as error:
            raise self._failed(str(error), page=number) from None

    async def _items(
        self, client: httpx.AsyncClient, media: dict[str, _Medium], deadline: float
    ) -> list[CatalogItem]:
        """Return the items of the media that can be played, with their categories."""
        slots = asyncio.Semaphore(DETAILS_AT_ONCE)

        async def item(medium: _Medium) -> CatalogItem | None:
            categories = medium.categories_info
            if categories is None:
                async with slots:
                    categories = await self._categories(client, medium.friendly_token, deadline)
            return None if categories is None else self._item(medium, categories)

        tasks: list[asyncio.Task[CatalogItem | None]] = []
        try:
            async with asyncio.TaskGroup() as group:
                for medium in media.values():
                    if not _token.fullmatch(medium.friendly_token):
                        raise self._failed("friendly_token must be letters, digits, - and _")
                    if medium.media_type in PLAYED_TYPES:
                        tasks.append(group.create_task(item(medium)))
        except ExceptionGroup as errors:
            raise errors.exceptions[0] from None
        return [found for task in tasks if (found := task.result()) is not None]

    async def _categories(
        self, client: httpx.AsyncClient, token: str, deadline: float
    ) -> list[dict[str, Any]] | None:
        """Return the categories of a medium, none if it is private; None if it is gone."""
        try:
            details = await self._fetched(client, f"media/{token}", _Details, deadline)
        except _StatusError as error:
            if error.status in _GONE:
                return None
            if error.status in _PRIVATE:
                return []
            raise self._failed(str(error), medium=token) from None
        return details.categories_info

    async def _fetched(
        self, client: httpx.AsyncClient, path: str, kind: type[T], deadline: float
    ) -> T:
        """Return a response, after some attempts. Raises CatalogSourceError or _StatusError."""
        reason = ""
        try:
            async with asyncio.timeout_at(deadline):
                for attempt in range(ATTEMPTS_MAX):
                    if attempt:
                        await self._sleep(PAUSE_SECONDS * 2 ** (attempt - 1))
                    try:
                        return await self._decoded(client, path, kind)
                    except _TryAgainError as error:
                        reason = str(error)
        except TimeoutError:
            reason = f"not read within {self._seconds_max:g} seconds"
        raise self._failed(reason, path=path)

    async def _decoded(self, client: httpx.AsyncClient, path: str, kind: type[T]) -> T:
        body = bytearray()
        try:
            async with (
                asyncio.timeout(MEDIACMS_RESPONSE_SECONDS_MAX),
                client.stream("GET", f"{self._url}/api/v1/{path}") as response,
            ):
                if response.status_code in _RETRIED:
                    raise _TryAgainError(f"status {response.status_code}")
                if response.status_code != 200:
                    raise _StatusError(response.status_code)
                async for part in response.aiter_bytes():
                    body += part
                    if len(body) > MEDIACMS_RESPONSE_BYTES_MAX:
                        raise self._failed("the response is too large", path=path)
        except httpx.InvalidURL as error:
            raise self._failed(str(error)) from None
        except (httpx.HTTPError, TimeoutError) as error:
            raise _TryAgainError(type(error).__name__) from error
        if sum(map(body.count, (b",", b"[", b"{"))) > MEDIACMS_RESPONSE_VALUES_MAX:
            raise self._failed("the response has too many values", path=path)
        try:
            return msgspec.json.decode(bytes(body), type=kind)
        except (msgspec.ValidationError, RecursionError) as error:
            raise self._failed(str(error), path=path) from None
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise _TryAgainError("the response is cut short or is not JSON") from error

    def _item(self, medium: _Medium, categories: list[dict[str, Any]]) -> CatalogItem:
        token = medium.friendly_token
        item = CatalogItem(
            video_id=token,
            title=printable_title(medium.title).strip() or token,
            categories=_names(categories),
            manifest_url=f"{self._url}/api/v1/media/cytube/{token}.json?format=json",
            duration_seconds=None if medium.duration is None else int(medium.duration),
            thumbnail_url=self._address(medium.thumbnail_url),
        )
        if (reason := check_item(item)) is not None:
            raise self._failed(reason, medium=token)
        return item

    def _address(self, path: str | None) -> str | None:
        if not path:
            return None
        try:
            address = urljoin(f"{self._url}/", path)
        except ValueError:
            return None
        return address if is_web_address(address) else None

    def _failed(self, reason: str, **where: object) -> CatalogSourceError:
        return CatalogSourceError(
            "The media could not be read: check mediacms_url, mediacms_token and that server.",
            url=_without_user(self._url),
            reason=reason,
            **where,
        )


def _without_user(url: str) -> str:
    parts = urlsplit(url)
    return parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl()


def _names(categories: list[dict[str, Any]]) -> list[str]:
    """Return the names of categories, each once."""
    titles = (each.get("title") for each in categories)
    names = (without_controls(title).strip() for title in titles if isinstance(title, str))
    return list(dict.fromkeys(filter(None, names)))
