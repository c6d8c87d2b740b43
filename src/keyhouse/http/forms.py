"""Forms: bodies as browsers send them, `application/x-www-form-urlencoded` or
`multipart/form-data`, converted to a Struct.

A blank input is absent, unless its member is text; a checked checkbox is true.
"""

import asyncio
from collections.abc import Iterator
from typing import Any, Final, get_args
from urllib.parse import unquote_to_bytes

import msgspec

from keyhouse.errors import LimitError, UsageError
from keyhouse.http.errors import MediaTypeError
from keyhouse.http.limits import FORM_FIELDS_MAX
from keyhouse.http.signature import Parameters

__all__ = ["FormReader", "UploadedFile"]

URLENCODED: Final = "application/x-www-form-urlencoded"
MULTIPART: Final = "multipart/form-data"

_PIECE_BYTES: Final = 64 * 1_024
_UNQUOTED_BYTES: Final = 16 * 1_024
"""Percent-encoded bytes that are decoded at once: a megabyte takes 0.1 s."""


class UploadedFile(msgspec.Struct, frozen=True):
    """A file of a form. `filename` and `media_type` are what the client says: do not trust them."""

    filename: str
    media_type: str
    content: bytes


class FormReader:
    """Reads forms as one Struct. A member that is an UploadedFile needs `multipart/form-data`."""

    __slots__ = ("_booleans", "_parameters", "_texts")

    def __init__(self, kind: type[msgspec.Struct]) -> None:
        fields = msgspec.structs.fields(kind)
        self._parameters = Parameters(kind, "form field")
        self._texts = frozenset(field.encode_name for field in fields if _has(field.type, str))
        self._booleans = frozenset(field.encode_name for field in fields if _has(field.type, bool))

    async def read(self, content_type: str | None, body: bytes) -> Any:
        """Raises MediaTypeError (415), UsageError (400) or LimitError (413)."""
        kind, options = _parameters(content_type)
        pairs: list[tuple[str, Any]]
        if kind == URLENCODED.encode():
            if body.count(b"&") >= FORM_FIELDS_MAX:
                raise _too_many()
            pairs = await _urlencoded(body)
        elif kind == MULTIPART.encode() and options.get(b"boundary"):
            pairs = await _multipart(options[b"boundary"], body)
        else:
            raise MediaTypeError(
                f"Send the form as {URLENCODED} or {MULTIPART}.", sent=content_type
            )
        return self._parameters.read(self._present(pairs))

    def _present(self, pairs: list[tuple[str, Any]]) -> Iterator[tuple[str, Any]]:
        for name, value in pairs:
            if value == "" and name not in self._texts:
                continue
            if isinstance(value, UploadedFile) and not value.filename and not value.content:
                continue  # no file was chosen
            yield name, "true" if value == "on" and name in self._booleans else value


async def _urlencoded(body: bytes) -> list[tuple[str, Any]]:
    """Decode piece by piece, so that other requests have their turn."""
    pairs: list[tuple[str, Any]] = []
    since_turn = 0
    for field in body.replace(b"+", b" ").split(b"&"):
        if field:
            name, _, value = field.partition(b"=")
            pairs.append((_text(await _unquoted(name)), _text(await _unquoted(value))))
            since_turn += len(field)
            if since_turn > _UNQUOTED_BYTES:
                since_turn = 0
                await asyncio.sleep(0)
    return pairs


async def _unquoted(data: bytes) -> bytes:
    if len(data) <= _UNQUOTED_BYTES:
        return unquote_to_bytes(data)
    decoded = bytearray()
    start = 0
    while start < len(data):
        end = start + _UNQUOTED_BYTES
        if (cut := data.rfind(b"%", end - 2, end)) >= 0:
            end = cut  # an escape is decoded as a whole
        decoded += unquote_to_bytes(data[start:end])
        start = end
        await asyncio.sleep(0)
    return bytes(decoded)


async def _multipart(boundary: bytes, body: bytes) -> list[tuple[str, Any]]:
    """Parse piece by piece, so that other requests have their turn."""
    from python_multipart.exceptions import FormParserError
    from python_multipart.multipart import MultipartParser

    parts = _Parts()
    try:
        parser = MultipartParser(boundary, parts.callbacks())
        for start in range(0, len(body), _PIECE_BYTES):
            parser.write(body[start : start + _PIECE_BYTES])
            await asyncio.sleep(0)
        parser.finalize()
    except FormParserError as error:
        raise UsageError("The form is not valid multipart/form-data.", reason=str(error)) from None
    if not parts.is_complete:
        raise UsageError("The form ends before its last boundary.")
    return parts.pairs


class _Parts:
    """Collects the parts of a multipart body."""

    def __init__(self) -> None:
        self.pairs: list[tuple[str, Any]] = []
        self.is_complete = False
        self._name = self._value = b""
        self._headers: dict[bytes, bytes] = {}
        self._content = bytearray()

    def callbacks(self) -> Any:
        return {
            "on_part_begin": self._begin,
            "on_header_field": self._header_name,
            "on_header_value": self._header_value,
            "on_header_end": self._header_end,
            "on_part_data": self._data,
            "on_part_end": self._end,
            "on_end": self._complete,
        }

    def _begin(self) -> None:
        if len(self.pairs) >= FORM_FIELDS_MAX:
            raise _too_many()
        self._headers = {}
        self._content = bytearray()

    def _header_name(self, data: bytes, start: int, end: int) -> None:
        self._name += data[start:end]

    def _header_value(self, data: bytes, start: int, end: int) -> None:
        self._value += data[start:end]

    def _header_end(self) -> None:
        self._headers[self._name.lower()] = self._value
        self._name = self._value = b""

    def _data(self, data: bytes, start: int, end: int) -> None:
        self._content += data[start:end]

    def _end(self) -> None:
        disposition, options = _parameters(
            self._headers.get(b"content-disposition", b"").decode("latin-1")
        )
        if disposition != b"form-data" or b"name" not in options:
            raise UsageError("A part of the form has no name.")
        name = _text(options[b"name"])
        if b"filename" not in options:
            self.pairs.append((name, _text(bytes(self._content))))
            return
        media_type = self._headers.get(b"content-type", b"application/octet-stream")
        file = UploadedFile(
            _text(options[b"filename"]), media_type.decode("latin-1"), bytes(self._content)
        )
        self.pairs.append((name, file))

    def _complete(self) -> None:
        self.is_complete = True


def _parameters(header: str | None) -> tuple[bytes, dict[bytes, bytes]]:
    """Parse a header such as `form-data; name="title"`.

    The library is imported when it is used: most services have no forms.
    """
    from python_multipart.multipart import parse_options_header

    parsed: tuple[bytes, dict[bytes, bytes]] = parse_options_header(header)
    return parsed


def _text(data: bytes) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise UsageError("A field of the form is not UTF-8.") from None


def _too_many() -> LimitError:
    return LimitError("The form has too many fields.", limit=FORM_FIELDS_MAX)


def _has(kind: Any, member: type) -> bool:
    return kind is member or any(_has(each, member) for each in get_args(kind))
