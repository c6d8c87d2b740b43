"""JSON Lines format of exports and backups: one line for each row, and a trailer.

    {"space":"channel-7","key":"clip:goal","value":{"title":"Goal!"},"expires":1767225600000}
    {"rows":1,"sha256":"…"}

A value that is JSON on one line, as the store writes it, is copied byte for byte. Other values are
complete as well: as `text` (several lines, surrounding white space, or text that is not JSON) or as
`base64` (bytes that are not text). `expires` is in milliseconds since 1970, and absent if the row
does not expire.

The trailer proves that the file is complete: it has the number of rows and the SHA-256 of all lines
before it. The trailer of a backup also has `made` and `moment`.

A line with `shown` instead of `value` is redacted: it has no private members, so it cannot be
imported.
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
from keyhouse.schema.json_guard import check_depth

BLOCK_LINES: Final = 4_000
BLOCK_BYTES: Final = 4 * 1_024 * 1_024
"""Size of a block of lines: large enough to group commits, small enough to keep memory constant."""

_WHITE = b" \t\r\n"


class Trailer(msgspec.Struct, frozen=True):
    """The last line. In a backup, `made` is its time in milliseconds.

    `moment` tells what is consistent: the whole `store`, or each `space` by itself.
    """

    rows: int
    sha256: str
    made: int | None = None
    moment: str | None = None


class ExportedRow(msgspec.Struct, frozen=True):
    """A row of a space. `is_redacted`: it has no private members."""

    space: str
    put: Put
    is_redacted: bool = False


_NONE = msgspec.Raw()


class _Form(msgspec.Struct, omit_defaults=True, forbid_unknown_fields=True):
    """All members that a line may have, in the order in which they are written."""

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


class Checksum:
    """The number and SHA-256 of the lines so far."""

    def __init__(self) -> None:
        self._hash = hashlib.sha256()
        self.rows = 0

    def add(self, lines: bytes, rows: int = 1) -> None:
        self._hash.update(lines)
        self.rows += rows

    def copy(self) -> "Checksum":
        copied = Checksum()
        copied._hash, copied.rows = self._hash.copy(), self.rows
        return copied

    def trailer(self, made: int | None = None, moment: str | None = None) -> Trailer:
        return Trailer(self.rows, self._hash.hexdigest(), made, moment)


def blocks(lines: Iterable[bytes]) -> Iterator[tuple[int, list[bytes]]]:
    """Yield blocks of lines without empty ones, each with the number of its first line."""
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
    if _fits_on_a_line(put.value):
        form.value = msgspec.Raw(put.value)
    else:
        try:
            form.text = put.value.decode()
        except UnicodeDecodeError:
            form.base64 = base64.b64encode(put.value).decode()
    return _encode(form) + b"\n"


def encode_rows(space: str, rows: Sequence[Row]) -> bytes:
    """Return the lines of several rows, as `encode_row` does, in a third of the time."""
    if not _all_fit_on_a_line([row.value for row in rows]):
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


def encode_trailer(trailer: Trailer) -> bytes:
    return (
        _encode(
            _Form(
                rows=trailer.rows, sha256=trailer.sha256, made=trailer.made, moment=trailer.moment
            )
        )
        + b"\n"
    )


def decode(line: bytes, number: int) -> ExportedRow | Trailer:
    """Return the row or trailer of a line; errors name the line's number."""
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
            "A line is not a row of an export: correct it, or export again.",
            line=number,
            reason=str(error),
        ) from error
    except KeyhouseError as error:
        error.fields["line"] = number
        raise


def decode_all(lines: Sequence[bytes], number: int) -> list[ExportedRow | Trailer]:
    """Decode all lines except empty ones. `number` is that of the first line."""
    try:
        forms = _decode_all(b"".join(lines))
        if len(forms) == len(lines):
            return [_read(form) for form in forms]
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError, ValueError, KeyhouseError):
        pass  # decode them one by one, to find the invalid line
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
        raise ValueError("its expiry is out of range")
    return ExportedRow(form.space, Put(form.key, value, form.expires), form.shown is not _NONE)


@lru_cache(maxsize=16)
def _check_space(space: str) -> None:
    if not 0 < len(space.encode()) <= SPACE_BYTES_MAX or "\0" in space:
        raise ValueError("a space's name has 1 to 255 bytes, without U+0000")


def _other_value(form: _Form, value: bytes) -> bytes:
    """Return the value of a row that is not JSON on one line."""
    forms = (value or None, bytes(form.shown) or None, _text(form.text), _bytes(form.base64))
    values = [each for each in forms if each is not None]
    if len(values) != 1:
        raise ValueError("it needs one value")
    return values[0]


def _text(text: str | None) -> bytes | None:
    return None if text is None else text.encode()


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else base64.b64decode(text, validate=True)


def _all_fit_on_a_line(values: list[bytes]) -> bool:
    """Check all values at once: as items of one array, each must be parsed as it was written."""
    array = b"[" + b",".join(values) + b"]"
    try:
        for value in values:
            check_depth(value)
        array.decode()
        return (
            b"\n" not in array and b"\r" not in array and list(map(bytes, _split(array))) == values
        )
    except (UnicodeDecodeError, msgspec.MsgspecError, DocumentError):
        return False


def _fits_on_a_line(value: bytes) -> bool:
    """Return True if the value is JSON that survives a line unchanged, and is nested no deeper than
    a document: how deep a parser can read depends on the version of Python."""
    if b"\n" in value or b"\r" in value or not value or value[0] in _WHITE or value[-1] in _WHITE:
        return False
    try:
        check_depth(value)
        value.decode()
        msgspec.json.decode(value, type=msgspec.Raw)
    except (UnicodeDecodeError, msgspec.MsgspecError, DocumentError):
        return False
    return True
