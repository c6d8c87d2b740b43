"""Forms: bodies as browsers send them, `application/x-www-form-urlencoded` or
`multipart/form-data`, converted to a Struct.

A blank input is absent, unless its member is text; a checked checkbox is true.
"""

import asyncio
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final, get_args

import msgspec

from keyhouse.errors import LimitError, UsageError
from keyhouse.http.errors import MediaTypeError
from keyhouse.http.limits import FORM_FIELDS_MAX
from keyhouse.http.signature import Parameters, query_pairs

__all__ = ["FormReader", "UploadedFile"]

URLENCODED: Final = "application/x-www-form-urlencoded"
MULTIPART: Final = "multipart/form-data"

_THREAD_FROM_BYTES: Final = 64 * 1_024
"""A longer form is read in a thread: a megabyte takes 0.1 s."""

_THREAD: Final = ThreadPoolExecutor(1, thread_name_prefix="forms")
"""One for all long forms: everybody may send them to a login, and several threads would take turns
at the interpreter with the event loop."""


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
        if len(body) < _THREAD_FROM_BYTES:
            return self._read(content_type, body)
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(_THREAD, self._read, content_type, body)

    def _read(self, content_type: str | None, body: bytes) -> Any:
        kind, options = _parameters(content_type)
        pairs: list[tuple[str, Any]]
        if kind == URLENCODED.encode():
            if body.count(b"&") >= FORM_FIELDS_MAX:
                raise _too_many()
            pairs = [*query_pairs(body, "field of the form")]
        elif kind == MULTIPART.encode() and options.get(b"boundary"):
            pairs = _multipart(options[b"boundary"], body)
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


def _multipart(boundary: bytes, body: bytes) -> list[tuple[str, Any]]:
    from python_multipart.exceptions import FormParserError
    from python_multipart.multipart import FormParser

    pairs: list[tuple[str, Any]] = []
    ends: list[bool] = []

    def add(name: bytes, value: Any) -> None:
        if len(pairs) >= FORM_FIELDS_MAX:
            raise _too_many()
        pairs.append((_text(name), value))

    def add_field(field: Any) -> None:
        add(field.field_name, _text(field.value or b""))

    def add_file(file: Any) -> None:
        media_type = file.content_type or "application/octet-stream"
        content = file.file_object.getvalue()
        add(file.field_name, UploadedFile(_text(file.file_name), media_type, content))

    options = {"MAX_MEMORY_FILE_SIZE": len(body), "UPLOAD_ERROR_ON_BAD_CTE": True}
    try:
        parser = FormParser(
            MULTIPART, add_field, add_file, lambda: ends.append(True), boundary, config=options
        )
        parser.write(body)
        parser.finalize()
    except FormParserError as error:
        raise UsageError("The form is not valid multipart/form-data.", reason=str(error)) from None
    if not ends:
        raise UsageError("The form ends before its last boundary.")
    return pairs


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
