"""Rows as JSON lines: the form in which a store leaves Keyhouse, and comes back. One line for each row, and one at the end.

    {"space":"channel-7","key":"clip:goal","value":{"title":"Goal!"},"expires":1767225600000}
    {"rows":1,"sha256":"…"}

The value stands there to the byte, where it is JSON on one line, as all that a store writes is. A row that another program
left is complete as well: as `text` (a value of several lines, or with white space around it, or text that is not JSON) or as
`base64` (bytes that are not text). `expires` is in milliseconds since 1970, and not there when the row does not expire.

The last line says that nothing is missing: how many rows there are, and the SHA-256 of all the lines before it. That of a
backup has `made` and `moment` besides.

A line that has `shown` in place of `value` is for people: private members are left out of it, so it can't be imported.
"""

import base64
import binascii
import hashlib
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from typing import Final

import msgspec

from keyhouse.engine import Put, Row, check_key
from keyhouse.errors import DocumentError, KeyhouseError, LimitError
from keyhouse.limits import EXPIRES_MAX, SPACE_BYTES_MAX, VALUE_BYTES_MAX

BLOCK_LINES: Final = 4_000
BLOCK_BYTES: Final = 4 * 1_024 * 1_024
"""Lines that are read at a time: enough that their commits share a sync, little enough that memory stays flat."""

_WHITE = b" \t\r\n"


class Trailer(msgspec.Struct, frozen=True):
    """The last line. A backup says there when it was made (in milliseconds), and what is of one moment in it: `store`, or
    each `space`."""

    rows: int
    sha256: str
    made: int | None = None
    moment: str | None = None


class ExportedRow(msgspec.Struct, frozen=True):
    """A row of a space. `is_shown`: only what people may see of it."""

    space: str
    put: Put
    is_shown: bool = False


_NONE = msgspec.Raw()


class _Form(msgspec.Struct, omit_defaults=True, forbid_unknown_fields=True):
    """Every member that a line may have, in the order in which they are written."""

    space: str | None = None
    key: str | None = None
    value: msgspec.Raw = _NONE
    shown: msgspec.Raw = _NONE
    text: str | None = None
    base64: str | None = None
    expires: int | None = None
    rows: int | None = None
    sha256: str | None = None
    made: int | None = None
    moment: str | None = None


_encode = msgspec.json.Encoder().encode
_form_decoder = msgspec.json.Decoder(_Form)
_decode = _form_decoder.decode
_decode_all = _form_decoder.decode_lines
_split = msgspec.json.Decoder(list[msgspec.Raw]).decode


class TrailerBuilder:
    """What the last line will say, from the lines before it."""

    def __init__(self) -> None:
        self._hash = hashlib.sha256()
        self.rows = 0

    def add(self, lines: bytes, rows: int = 1) -> None:
        self._hash.update(lines)
        self.rows += rows

    def copy(self) -> "TrailerBuilder":
        """As it is now, to come back to."""
        same = TrailerBuilder()
        same._hash, same.rows = self._hash.copy(), self.rows
        return same

    def ending(self, made: int | None = None, moment: str | None = None) -> Trailer:
        return Trailer(self.rows, self._hash.hexdigest(), made, moment)


def blocks(lines: Iterable[bytes]) -> Iterator[tuple[int, list[bytes]]]:
    """Some lines at a time, without empty ones, and the number of the first."""
    first, block, size = 1, list[bytes](), 0
    for number, line in enumerate(lines, 1):
        is_empty = line[:1] != b"{" and line.isspace()
        if is_empty or size >= BLOCK_BYTES or len(block) == BLOCK_LINES:
            if block:
                yield first, block
            first, block, size = number + is_empty, [], 0
        if not is_empty:
            block.append(line)
            size += len(line)
    if block:
        yield first, block


def encode_row(space: str, put: Put) -> bytes:
    form = _Form(space=space, key=put.key, expires=put.expires)
    if _stands_in_a_line(put.value):
        form.value = msgspec.Raw(put.value)
    else:
        try:
            form.text = put.value.decode()
        except UnicodeDecodeError:
            form.base64 = base64.b64encode(put.value).decode()
    return _encode(form) + b"\n"


def encode_rows(space: str, rows: Sequence[Row]) -> bytes:
    """The lines of several rows of a space: the same as `encode_row` makes of each, at a third of the time."""
    if not _stand_in_lines([row.value for row in rows]):
        return b"".join([encode_row(space, Put(row.key, row.value, row.expires)) for row in rows])
    head = b'{"space":' + _encode(space) + b',"key":'
    return b"".join(
        [
            b'%b%b,"value":%b}\n' % (head, _encode(row.key), row.value)
            if row.expires is None
            else b'%b%b,"value":%b,"expires":%d}\n'
            % (head, _encode(row.key), row.value, row.expires)
            for row in rows
        ]
    )


def encode_redacted(space: str, key: str, shown: object, expires: int | None) -> bytes:
    return (
        _encode(_Form(space=space, key=key, shown=msgspec.Raw(_encode(shown)), expires=expires))
        + b"\n"
    )


def encode_trailer(ending: Trailer) -> bytes:
    return (
        _encode(
            _Form(rows=ending.rows, sha256=ending.sha256, made=ending.made, moment=ending.moment)
        )
        + b"\n"
    )


def decode(line: bytes, number: int) -> ExportedRow | Trailer:
    """The line; refused, with its number, when it is none or could not be kept."""
    try:
        form = _decode(line)
        return _read(form)
    except (
        msgspec.MsgspecError,
        UnicodeDecodeError,
        RecursionError,
        binascii.Error,
        ValueError,
    ) as error:
        raise DocumentError(
            "A line is not a row of an export: mend it, or export again.",
            line=number,
            reason=str(error),
        ) from error
    except KeyhouseError as error:
        error.fields["line"] = number
        raise


def decode_all(lines: Sequence[bytes], number: int) -> list[ExportedRow | Trailer]:
    """What `decode` makes of each of them, empty ones left out. `number`: of the first line."""
    try:
        forms = _decode_all(b"".join(lines))
        if len(forms) == len(lines):
            return [_read(form) for form in forms]
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError, ValueError, KeyhouseError):
        pass  # one of them is not a row: which, is found one by one
    return [decode(line, at) for at, line in enumerate(lines, number) if line.strip()]


def _read(form: _Form) -> ExportedRow | Trailer:
    if form.rows is not None and form.sha256 is not None:
        return Trailer(form.rows, form.sha256, form.made, form.moment)
    if form.space is None or form.key is None:
        raise ValueError("it needs a space and a key")
    _check_space(form.space)
    check_key(form.key)
    value = bytes(form.value)
    if form.shown is not _NONE or form.text is not None or form.base64 is not None or not value:
        value = _other_value(form, value)
    if len(value) > VALUE_BYTES_MAX:
        raise LimitError(
            "The value is too large.", key=form.key, bytes=len(value), limit=VALUE_BYTES_MAX
        )
    if form.expires is not None and form.expires > EXPIRES_MAX:
        raise ValueError("it expires at no time that can be kept")
    return ExportedRow(form.space, Put(form.key, value, form.expires), form.shown is not _NONE)


@lru_cache(maxsize=16)
def _check_space(space: str) -> None:
    if not 0 < len(space.encode()) <= SPACE_BYTES_MAX or "\0" in space:
        raise ValueError("a space's name has 1 to 255 bytes, and no U+0000")


def _other_value(form: _Form, value: bytes) -> bytes:
    """Of a row that is not plain JSON on its line."""
    forms = (value or None, bytes(form.shown) or None, _text(form.text), _bytes(form.base64))
    values = [each for each in forms if each is not None]
    if len(values) != 1:
        raise ValueError("it needs one value")
    return values[0]


def _text(text: str | None) -> bytes | None:
    return None if text is None else text.encode()


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else base64.b64decode(text, validate=True)


def _stand_in_lines(values: list[bytes]) -> bool:
    """Whether all of them do, asked at once: as members of one array, each must come out as it went in."""
    array = b"[" + b",".join(values) + b"]"
    try:
        array.decode()
        return (
            b"\n" not in array and b"\r" not in array and list(map(bytes, _split(array))) == values
        )
    except (UnicodeDecodeError, msgspec.MsgspecError, RecursionError):
        return False


def _stands_in_a_line(value: bytes) -> bool:
    """Whether it is JSON that comes back from a line as it went in."""
    if b"\n" in value or b"\r" in value or not value or value[0] in _WHITE or value[-1] in _WHITE:
        return False
    try:
        value.decode()
        msgspec.json.decode(value, type=msgspec.Raw)
    except (UnicodeDecodeError, msgspec.MsgspecError, RecursionError):
        return False
    return True
