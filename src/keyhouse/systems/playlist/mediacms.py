"""A MediaCMS as the source of the catalog: its list of media, page by page.

A page that fails, is cut short or is not what it should be is fetched again, with growing pauses;
if it keeps failing, the refresh fails and the catalog stays. Media that move from one page to the
next while they are listed come twice and are taken once.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Final
from urllib.parse import urljoin, urlsplit

import httpx
import msgspec

from keyhouse.systems.playlist.catalog import CatalogItem, check_item
from keyhouse.systems.playlist.errors import CatalogSourceError
from keyhouse.systems.playlist.limits import CATALOG_ITEMS_MAX, MEDIACMS_PAGE_BYTES_MAX
from keyhouse.systems.playlist.names import printable_title, without_controls
from keyhouse.systems.playlist.refresh import Items

__all__ = ["MediaCms"]

ATTEMPTS_MAX: Final = 5
PAUSE_SECONDS: Final = 0.5
TIMEOUT_SECONDS: Final = 30.0
_RETRIED: Final = frozenset({408, 425, 429, 500, 502, 503, 504})


class _Medium(msgspec.Struct):
    friendly_token: str
    title: str
    duration: float | None = None
    thumbnail_url: str | None = None
    categories_info: list[dict[str, Any]] | None = None
    categories: list[Any] | None = None
    media_type: str | None = None


class _Page(msgspec.Struct):
    results: list[_Medium]
    count: int | None = None
    next: str | None = None


class _TryAgainError(Exception):
    """A failure that may pass."""


class MediaCms:
    """`transport` and `sleep` are for tests."""

    name = "mediacms"
    can_follow = True

    def __init__(
        self,
        url: str,
        token: str | None = None,
        *,
        transport: httpx.AsyncBaseTransport | None = None,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._url = url.rstrip("/")
        self._headers = {"Accept": "application/json"}
        if token is not None:
            self._headers["Authorization"] = f"Token {token}"
        self._transport = transport
        self._sleep = sleep

    async def items(self) -> Items:
        """Iterate over the media, a page at a time. Raises CatalogSourceError if a page fails."""
        seen: set[str] = set()
        number, has_more = 1, True
        async with httpx.AsyncClient(
            transport=self._transport,
            headers=self._headers,
            timeout=TIMEOUT_SECONDS,
            follow_redirects=False,
        ) as client:
            while has_more:
                page = await self._page(client, number)
                items = [self._item(medium) for medium in page.results]
                new = [item for item in items if item.video_id not in seen]
                seen.update(item.video_id for item in new)
                yield new, page.count
                if len(seen) > CATALOG_ITEMS_MAX:
                    return  # rejected by the caller
                has_more, number = page.next is not None and bool(items), number + 1
        if page.count is not None and len(seen) < page.count and page.next is not None:
            raise self._failed(number, "the list ended early")

    async def _page(self, client: httpx.AsyncClient, number: int) -> _Page:
        reason = ""
        for attempt in range(ATTEMPTS_MAX):
            if attempt:
                await self._sleep(PAUSE_SECONDS * 2 ** (attempt - 1))
            try:
                return await self._fetched(client, number)
            except _TryAgainError as error:
                reason = str(error)
        raise self._failed(number, reason)

    async def _fetched(self, client: httpx.AsyncClient, number: int) -> _Page:
        url = f"{self._url}/api/v1/media"
        try:
            async with client.stream("GET", url, params={"page": number}) as response:
                if response.status_code in _RETRIED:
                    raise _TryAgainError(f"status {response.status_code}")
                if response.status_code != 200:
                    raise self._failed(number, f"status {response.status_code}")
                body = bytearray()
                async for part in response.aiter_bytes():
                    body += part
                    if len(body) > MEDIACMS_PAGE_BYTES_MAX:
                        raise self._failed(number, "the page is too large")
        except httpx.HTTPError as error:
            raise _TryAgainError(type(error).__name__) from error
        try:
            return msgspec.json.decode(bytes(body), type=_Page)
        except msgspec.ValidationError as error:
            raise self._failed(number, str(error)) from None
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise _TryAgainError("the page is cut short or is not JSON") from error

    def _item(self, medium: _Medium) -> CatalogItem:
        token = medium.friendly_token
        item = CatalogItem(
            video_id=token,
            title=printable_title(medium.title).strip() or token,
            categories=_categories(medium),
            manifest_url=f"{self._url}/api/v1/media/cytube/{token}.json?format=json",
            duration_seconds=None if medium.duration is None else int(medium.duration),
            thumbnail_url=self._address(medium.thumbnail_url),
        )
        if (reason := check_item(item)) is not None:
            raise CatalogSourceError("A medium is invalid.", video_id=token, reason=reason)
        return item

    def _address(self, path: str | None) -> str | None:
        if not path:
            return None
        address = urljoin(f"{self._url}/", path)
        return address if urlsplit(address).scheme in ("http", "https") else None

    def _failed(self, page: int, reason: str) -> CatalogSourceError:
        return CatalogSourceError(
            "The media could not be read: check mediacms_url and mediacms_token.",
            url=self._url,
            page=page,
            reason=reason,
        )


def _categories(medium: _Medium) -> list[str]:
    """Return the names of the categories, which MediaCMS lists as objects or as texts."""
    found = []
    for each in medium.categories_info or medium.categories or ():
        name = each.get("title") if isinstance(each, dict) else each
        if isinstance(name, str) and (name := without_controls(name).strip()):
            found.append(name)
    return list(dict.fromkeys(found))
