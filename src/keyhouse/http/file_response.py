"""Files below a configured root, whole or by ranges (RFC 9110, sections 13 and 14).

No symbolic link below the root is followed. Files are read in threads, except for what the system
has in memory, and a response holds at most one piece of PIECE_BYTES.
"""

import asyncio
import errno
import os
import re
import stat
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from email.utils import formatdate, parsedate_to_datetime
from pathlib import Path
from typing import Any, ClassVar, Final

from keyhouse.errors import BusyError, NotFoundError, RevisionError, UnavailableError, UsageError
from keyhouse.http.errors import RangeError
from keyhouse.http.limits import OPEN_FILES_MAX
from keyhouse.http.preconditions import conditions
from keyhouse.http.response import ANYTHING, EncodedResponse, Headers, Responder, ResponseSpec
from keyhouse.rooted_path import open_below

__all__ = ["FileResponse", "FileRoot"]

PIECE_BYTES: Final = 256 * 1_024

_NO_WAIT: Final[int] = getattr(os, "RWF_NOWAIT", 0)
_ABSENT: Final = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.ENAMETOOLONG)
_RANGE: Final = re.compile(rb"bytes=[ \t]*(\d*)-(\d*)[ \t]*")
_DIGITS_MAX: Final = 18

Run = Callable[..., Awaitable[Any]]
"""Calls a function with arguments in a thread, as `asyncio.to_thread` does."""


class OpenFile:
    """A regular file that is open for reading. `close` may be called twice."""

    __slots__ = ("_descriptor", "_root", "modified_ns", "size")

    def __init__(self, descriptor: int, root: "FileRoot") -> None:
        status = os.fstat(descriptor)
        self._descriptor: int | None = descriptor
        self._root = root
        self.size = status.st_size
        self.modified_ns = status.st_mtime_ns
        if not stat.S_ISREG(status.st_mode):
            self.close()
            raise NotFoundError("There is no such file.")

    def __del__(self) -> None:
        self.close()

    def close(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None
            self._root.open_files -= 1

    async def pieces(self, start: int, end: int) -> AsyncIterator[bytes]:
        """Iterate over the bytes from `start` to before `end`, then close the file. The app lets
        others have their turn between two pieces."""
        try:
            while start < end:
                assert self._descriptor is not None
                size = min(PIECE_BYTES, end - start)
                piece: bytes | None = self._root.read_cached(self._descriptor, size, start)
                if piece is None:
                    piece = await self._root.run(os.pread, self._descriptor, size, start)
                if not piece:
                    raise OSError("the file became shorter while it was sent")
                start += len(piece)
                yield piece
        finally:
            self.close()


class FileRoot:
    """The folder that files are served from.

    `run` calls a function in a thread: pass the `run` of a pool to bound the threads. At most
    `open_files_max` files are open at once; beyond, BusyError (503).
    """

    def __init__(
        self, path: Path, *, run: Run = asyncio.to_thread, open_files_max: int = OPEN_FILES_MAX
    ) -> None:
        if os.open not in os.supports_dir_fd:
            raise UsageError("Files cannot be served safely on this system.")
        if not path.is_dir():
            raise UsageError("The folder of files does not exist.", path=str(path))
        self.path = path
        self.run = run
        self.open_files = 0
        self._open_files_max = open_files_max
        self._buffer = memoryview(bytearray(PIECE_BYTES))

    async def open(self, path: str) -> OpenFile:
        """Open a file by its path below the root, with slashes. Raises NotFoundError."""
        names = path.split("/")
        if any(name in ("", ".", "..") or "\0" in name for name in names):
            raise NotFoundError("There is no such file.")
        if self.open_files >= self._open_files_max:
            raise BusyError("Too many files are being read: try again.", limit=self._open_files_max)
        self.open_files += 1
        try:
            descriptor = await self.run(open_below, self.path, names)
        except BaseException as error:
            self.open_files -= 1
            if isinstance(error, OSError):
                raise _translated(error) from None
            raise
        return OpenFile(descriptor, self)

    def read_cached(self, descriptor: int, size: int, start: int) -> bytes | None:
        """Return bytes of a file that the system has in memory; None if a read might wait for the
        disk, or the system cannot tell."""
        if not _NO_WAIT:
            return None
        view = self._buffer[:size]
        try:
            count = os.preadv(descriptor, [view], start, _NO_WAIT)
        except OSError:  # not in memory, or a file system that cannot tell
            return None
        return bytes(view[:count]) or None


class FileResponse(Responder):
    """A file as the response, whole or the one range that the client asks for.

    `etag` identifies the content, with its quotes; by default it is made of the file's time and
    size.
    """

    replies: ClassVar[Mapping[int, ResponseSpec]] = {
        200: ResponseSpec(type=bytes, about="The file.", media_type=ANYTHING),
        206: ResponseSpec(type=bytes, about="The range of the file.", media_type=ANYTHING),
        304: ResponseSpec(type=type(None), about="The client has this version already."),
    }

    def __init__(
        self,
        root: FileRoot,
        path: str,
        *,
        media_type: str,
        etag: str | None = None,
        cache: str = "private, no-cache",
        headers: tuple[tuple[str, str], ...] = (),
    ) -> None:
        self._root = root
        self._path = path
        self._media_type = media_type
        self._etag = etag
        self._cache = cache
        self._own_headers = headers

    async def respond(self, method: str, headers: Mapping[bytes, bytes]) -> EncodedResponse:
        file = await self._root.open(self._path)
        try:
            return self._respond(file, method, headers)
        except BaseException:
            file.close()
            raise

    def _respond(
        self, file: OpenFile, method: str, headers: Mapping[bytes, bytes]
    ) -> EncodedResponse:
        tag = self._etag or f'"{file.modified_ns:x}-{file.size:x}"'
        modified = formatdate(file.modified_ns // 10**9, usegmt=True)
        own = self._headers(tag, modified)
        if _is_unchanged(headers, tag, file.modified_ns // 10**9):
            file.close()
            return EncodedResponse(304, own)
        own.append((b"content-type", self._media_type.encode("latin-1")))
        start, end, status = 0, file.size, 200
        if method == "GET" and b"range" in headers and _range_applies(headers, tag, modified):
            asked = byte_range(headers[b"range"], file.size)
            if asked is not None:
                start, end = asked
                status = 206
                own.append((b"content-range", b"bytes %d-%d/%d" % (start, end - 1, file.size)))
        own.append((b"content-length", b"%d" % (end - start)))
        if method == "HEAD":
            file.close()
        return EncodedResponse(status, own, file.pieces(start, end))

    def _headers(self, tag: str, modified: str) -> Headers:
        return [
            (b"etag", tag.encode("latin-1")),
            (b"last-modified", modified.encode()),
            (b"accept-ranges", b"bytes"),
            (b"cache-control", self._cache.encode("latin-1")),
            *((name.lower().encode(), text.encode("latin-1")) for name, text in self._own_headers),
        ]


def _is_unchanged(headers: Mapping[bytes, bytes], tag: str, modified: int) -> bool:
    """Return whether the response is 304. Raises RevisionError (412) if If-Match fails."""
    given = conditions(_text(headers, b"if-match"), _text(headers, b"if-none-match"))
    if given.if_match is not None and given.if_match != ("*",) and tag not in given.if_match:
        raise RevisionError("The file does not match If-Match: read it again.", now=tag)
    if given.if_none_match is not None:
        return given.unchanged(tag)
    since = _date(headers.get(b"if-modified-since"))
    return since is not None and modified <= since


def _range_applies(headers: Mapping[bytes, bytes], tag: str, modified: str) -> bool:
    """If-Range: the range is of the version that the client has, by its tag or its exact time."""
    condition = _text(headers, b"if-range")
    return condition is None or (condition in (tag, modified) and not condition.startswith("W/"))


def byte_range(header: bytes, size: int) -> tuple[int, int] | None:
    """Return the first byte and the one after the last; None for the whole file.

    Several ranges, other units and invalid ones are ignored, as the RFC allows. Raises RangeError
    if the range begins after the end.
    """
    match = _RANGE.fullmatch(header.strip())
    if match is None or not (match[1] or match[2]) or size == 0:
        return None
    if not match[1]:
        suffix = _integer(match[2])
        if suffix == 0:
            raise _unsatisfiable(size)
        return max(0, size - suffix), size
    start = _integer(match[1])
    last = _integer(match[2]) if match[2] else None
    if last is not None and last < start:
        return None
    if start >= size:
        raise _unsatisfiable(size)
    return start, size if last is None else min(last + 1, size)


def _integer(digits: bytes) -> int:
    """Return a number of a range. A longer one is beyond the end of every file."""
    plain = digits.lstrip(b"0")
    return int(plain or b"0") if len(plain) <= _DIGITS_MAX else 10**_DIGITS_MAX


def _unsatisfiable(size: int) -> RangeError:
    return RangeError("The range is not within the file.", size=size)


def _translated(error: OSError) -> Exception:
    if error.errno in _ABSENT:
        return NotFoundError("There is no such file.")
    return UnavailableError("The file cannot be read.", reason=str(error.strerror))


def _text(headers: Mapping[bytes, bytes], name: bytes) -> str | None:
    value = headers.get(name)
    return None if value is None else value.decode("latin-1").strip()


def _date(header: bytes | None) -> float | None:
    """Return the time of a header; None if it is absent or invalid, which is ignored."""
    try:
        return None if header is None else parsedate_to_datetime(header.decode()).timestamp()
    except (ValueError, OverflowError):
        return None
