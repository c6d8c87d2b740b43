"""A folder of the operator's own pages, served at `/pages/` without a token: an overlay, a form.

A page has the origin of the service, so it needs no CORS; and it shares the origin with the Studio,
so its policy forbids scripts inside HTML: text of a viewer that reaches `innerHTML` is not run.
Only files of known types are served, and none whose name starts with a dot or that is behind a
symbolic link.
"""

from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

from keyhouse.errors import NotFoundError, UsageError
from keyhouse.http import FileResponse, FileRoot, Response, Route, redirect_route

__all__ = ["PAGES", "check_pages", "page_routes"]

PAGES: Final = "/pages"
INDEX: Final = "index.html"
DEPTH_MAX: Final = 6
"""Folders in each other, with the file itself."""

_POLICY: Final = (
    "default-src 'self'; script-src 'self'; style-src 'self' 'unsafe-inline'; "
    "img-src * data: blob:; media-src * data: blob:; font-src * data:; connect-src *; "
    "object-src 'none'; frame-ancestors 'none'; base-uri 'none'; form-action 'self'"
)
_TEXT: Final = "; charset=utf-8"
_TYPES: Final = {
    "avif": "image/avif",
    "css": "text/css" + _TEXT,
    "gif": "image/gif",
    "htm": "text/html" + _TEXT,
    "html": "text/html" + _TEXT,
    "ico": "image/x-icon",
    "jpeg": "image/jpeg",
    "jpg": "image/jpeg",
    "js": "text/javascript" + _TEXT,
    "json": "application/json",
    "m4a": "audio/mp4",
    "map": "application/json",
    "mjs": "text/javascript" + _TEXT,
    "mp3": "audio/mpeg",
    "mp4": "video/mp4",
    "ogg": "audio/ogg",
    "otf": "font/otf",
    "pdf": "application/pdf",
    "png": "image/png",
    "svg": "image/svg+xml",
    "ttf": "font/ttf",
    "txt": "text/plain" + _TEXT,
    "wasm": "application/wasm",
    "wav": "audio/wav",
    "webm": "video/webm",
    "webmanifest": "application/manifest+json",
    "webp": "image/webp",
    "woff": "font/woff",
    "woff2": "font/woff2",
}


def check_pages(pages: str, data: str) -> Path:
    """Return the folder. Raises UsageError if it does not exist, or has the data folder in it."""
    folder = Path(pages)
    if not folder.is_dir():
        raise UsageError("The folder of pages does not exist.", pages=pages)
    if Path(data).resolve().is_relative_to(folder.resolve()):
        raise UsageError(
            "The data folder is inside the folder of pages, which everybody can read: give pages a"
            " folder that has nothing else.",
            pages=pages,
            data=data,
        )
    return folder


def page_routes(folder: Path, run: Callable[..., Awaitable[Any]]) -> Sequence[Route]:
    """Return the routes of the folder. `run` calls a function in a thread."""
    root = FileRoot(folder, run=run)

    async def respond(*names: str) -> FileResponse | Response[bytes]:
        path = "/".join(names)
        if any(name.startswith(".") for name in path.split("/")):
            raise NotFoundError("There is no such page.", path=path)
        kind = _TYPES.get(path.rpartition(".")[2].lower())
        if kind is None:  # a folder without the slash that relative links need
            (await root.open(f"{path}/{INDEX}")).close()
            return Response(b"", status=307, headers=(("Location", f"{quote(names[-1])}/"),))
        headers = (("Content-Security-Policy", _POLICY),)
        return FileResponse(root, path, media_type=kind, cache="no-cache", headers=headers)

    routes = [redirect_route(PAGES, f"{PAGES}/", "To the pages.")]
    for depth in range(DEPTH_MAX):
        fields = [f"name{number}" for number in range(depth)]
        path = "".join([f"/{{{field}}}" for field in fields])
        routes.append(_route(f"{PAGES}{path}/", fields, respond, INDEX))
        if fields:
            routes.append(_route(f"{PAGES}{path}", fields, respond))
    return routes


def _route(
    path: str, fields: Sequence[str], respond: Callable[..., Awaitable[Any]], *more: str
) -> Route:
    async def page(**names: str) -> Any:
        return await respond(*(names[field] for field in fields), *more)

    parameters = dict.fromkeys(fields, str)
    return Route(
        method="GET",
        path=path,
        handler=page,
        parameters=parameters,
        result=FileResponse,
        listed=False,
    )
