"""HTML pages: templates that escape everything, under a policy that allows no inline script.

A page may load scripts, styles and images from its own origin only, and send forms only there;
other sites cannot show it in a frame. Long pages are compressed: they must not have a secret, such
as a token against forgery, beside text of the request.
"""

import asyncio
import gzip
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import Any, ClassVar, Final
from urllib.parse import quote, urlencode

import msgspec

from keyhouse.errors import UsageError
from keyhouse.http.content_negotiation import accepts_gzip
from keyhouse.http.response import EncodedResponse, Responder, ResponseSpec
from keyhouse.scheduling.work_turns import wait_for_turn

__all__ = ["PAGE_POLICY", "HtmlPage", "Redirect", "Templates", "page_location"]

PAGE_POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "font-src 'self'; media-src 'self'; connect-src 'self'; manifest-src 'self'; "
    "form-action 'self'; "
    "frame-ancestors 'none'; base-uri 'none'"
)
"""For pages with forms; scripts and styles are separate files."""

_COMPRESSED_FROM_BYTES: Final = 1_400  # less fits into one packet
_THREAD_FROM_BYTES: Final = 64 * 1_024
_STEP_SECONDS: Final = 0.001
_PAGES: Final = "pages:"  # no space has this name
_HTML: Final = "text/html; charset=utf-8"
_SHARED: Final = Path(__file__).parent / "templates"
_LOCAL_PATH: Final = re.compile(r"/(?![/\\])[\x21-\x5b\x5d-\x7e]*")


class HtmlPage(Responder):
    """An HTML page as the response. `headers` may set cookies."""

    replies: ClassVar[Mapping[int, ResponseSpec]] = {
        200: ResponseSpec(type=bytes, about="A page.", media_type=_HTML)
    }

    def __init__(
        self,
        html: str,
        *,
        status: int = 200,
        headers: tuple[tuple[str, str], ...] = (),
        policy: str = PAGE_POLICY,
    ) -> None:
        self.html = html
        self._status = status
        self._headers = headers
        self._policy = policy

    async def respond(self, method: str, headers: Mapping[bytes, bytes]) -> EncodedResponse:
        own = [
            (b"content-type", _HTML.encode()),
            (b"content-security-policy", self._policy.encode()),
            (b"referrer-policy", b"same-origin"),
            (b"cross-origin-opener-policy", b"same-origin"),
            (b"cache-control", b"private, no-store"),
            *_encoded(self._headers),
        ]
        body = self.html.encode()
        if len(body) >= _COMPRESSED_FROM_BYTES:
            own.append((b"vary", b"accept-encoding"))
            if accepts_gzip(headers.get(b"accept-encoding", b"").decode("latin-1")):
                own.append((b"content-encoding", b"gzip"))
                body = await _compressed(body)
        return EncodedResponse(self._status, own, body)


class Redirect(Responder):
    """Redirects to a path of this server (303): after a form, the browser gets that page.

    Raises UsageError for any other place, so that no parameter can send a user elsewhere.
    """

    replies: ClassVar[Mapping[int, ResponseSpec]] = {
        303: ResponseSpec(type=type(None), about="To another page.")
    }

    def __init__(self, path: str, *, headers: tuple[tuple[str, str], ...] = ()) -> None:
        if not _LOCAL_PATH.fullmatch(path):
            raise UsageError("A redirect leads to a path of this server.", path=path)
        self._path = path
        self._headers = headers

    def with_root(self, root: str) -> "Redirect":
        """Return the redirect to the same path below that of the app."""
        return Redirect(f"{root}{self._path}", headers=self._headers)

    async def respond(self, method: str, headers: Mapping[bytes, bytes]) -> EncodedResponse:
        own = [
            (b"location", self._path.encode()),
            (b"cache-control", b"private, no-store"),
            *_encoded(self._headers),
        ]
        return EncodedResponse(303, own)


class Templates:
    """The Jinja2 templates of a folder. Values are escaped, and a missing one is an error.

    `{% extends "base.html" %}` is the frame that all pages share, unless the folder has its own.
    """

    def __init__(self, folder: Path, **shared: Any) -> None:
        from jinja2 import Environment, FileSystemLoader, StrictUndefined

        self._environment = Environment(
            loader=FileSystemLoader([folder, _SHARED]),
            autoescape=True,
            undefined=StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        self._environment.globals.update(shared)
        self._long_page = asyncio.Lock()

    def page(
        self,
        name: str,
        /,
        *,
        status: int = 200,
        headers: tuple[tuple[str, str], ...] = (),
        **values: Any,
    ) -> HtmlPage:
        """Render a template as a page."""
        html: str = self._environment.get_template(name).render(values)
        return HtmlPage(html, status=status, headers=headers)

    async def page_in_steps(
        self,
        name: str,
        /,
        *,
        status: int = 200,
        headers: tuple[tuple[str, str], ...] = (),
        **values: Any,
    ) -> HtmlPage:
        """Render a template as a page that may be long, such as a list of 1,000 books: other
        requests run between the steps, of one long page at a time, which are turns of long work."""
        pieces = self._environment.get_template(name).generate(values)
        html: list[str] = []
        if not _render_step(pieces, html):
            async with self._long_page:
                while not _render_step(pieces, html):
                    await wait_for_turn(_PAGES)
        return HtmlPage("".join(html), status=status, headers=headers)


def _render_step(pieces: Iterator[str], html: list[str]) -> bool:
    """Append pieces of a page for a millisecond. Return True if it is complete."""
    stop = perf_counter() + _STEP_SECONDS
    for piece in pieces:
        html.append(piece)
        if perf_counter() > stop:
            return False
    return True


async def _compressed(body: bytes) -> bytes:
    """Compress a long page in a thread, so that other requests have their turn."""
    compress = partial(gzip.compress, compresslevel=5, mtime=0)
    if len(body) < _THREAD_FROM_BYTES:
        return compress(body)
    return await asyncio.to_thread(compress, body)


def _encoded(headers: tuple[tuple[str, str], ...]) -> list[tuple[bytes, bytes]]:
    return [(name.lower().encode("latin-1"), text.encode("latin-1")) for name, text in headers]


def page_location(service: str, path: str, arguments: dict[str, Any]) -> str:
    """Return the path and query of the page that was asked for."""
    filled = path
    for name, value in arguments.items():
        if isinstance(value, str):
            filled = filled.replace(f"{{{name}}}", quote(value, safe=""))
    query = arguments.get("query")
    given: Sequence[tuple[str, Any]] = ()
    if isinstance(query, msgspec.Struct):
        given = [
            pair
            for name, value in msgspec.to_builtins(query).items()
            if value not in (None, "", 0, False, [])
            for pair in (
                value.items()
                if isinstance(value, dict)
                else [(name, "true" if value is True else value)]
            )
        ]
    return f"/{service}{filled}" + (f"?{urlencode(given, doseq=True)}" if given else "")
