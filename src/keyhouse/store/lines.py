"""Rows as JSON lines: the form in which a store leaves Keyhouse, and comes back. One line for each row, and one at the end.

    {"space":"channel-7","key":"clip:goal","value":{"title":"Goal!"},"expires":1767225600000}
    {"rows":1,"sha256":"…"}

The value stands there to the byte, where it is JSON on one line, as all that a store writes is. A row that another program
left is complete as well: as `text` (a value of several lines, or with white space around it, or text that is not JSON) or as
`base64` (bytes that are not text). `expires` is in milliseconds since 1970, and not there when the row does not expire.

The last line says that nothing is missing: how many rows there are, and the SHA-256 of all the lines before it.

A line that has `shown` in place of `value` is for people: private members are left out of it, so it can't be imported.
"""

import base64
import binascii
import hashlib

import msgspec

from keyhouse.engine import Put, check_key
from keyhouse.errors import DocumentError, KeyhouseError, LimitError
from keyhouse.limits import SPACE_BYTES_MAX, VALUE_BYTES_MAX

_WHITE = b" \t\r\n"
_TIME_MAX = 2**63 - 1


class Ending(msgspec.Struct, frozen=True):
    """The last line."""

    rows: int
    sha256: str


class Line(msgspec.Struct, frozen=True):
    """A row of a space. `is_shown`: only what people may see of it."""

    space: str
    put: Put
    is_shown: bool = False


class _Form(msgspec.Struct, omit_defaults=True, forbid_unknown_fields=True):
    """Every member that a line may have, in the order in which they are written."""

    space: str | None = None
    key: str | None = None
    value: msgspec.Raw = msgspec.Raw()
    shown: msgspec.Raw = msgspec.Raw()
    text: str | None = None
    base64: str | None = None
    expires: int | None = None
    rows: int | None = None
    sha256: str | None = None


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(_Form).decode


class Tally:
    """What the last line will say, from the lines before it."""

    def __init__(self) -> None:
        self._hash = hashlib.sha256()
        self.rows = 0

    def add(self, line: bytes) -> None:
        self._hash.update(line)
        self.rows += 1

    def ending(self) -> Ending:
        return Ending(self.rows, self._hash.hexdigest())


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


def encode_shown(space: str, key: str, shown: object, expires: int | None) -> bytes:
    return _encode(_Form(space=space, key=key, shown=msgspec.Raw(_encode(shown)), expires=expires)) + b"\n"


def encode_ending(ending: Ending) -> bytes:
    return _encode(_Form(rows=ending.rows, sha256=ending.sha256)) + b"\n"


def decode(line: bytes, number: int) -> Line | Ending:
    """The line; refused, with its number, when it is none or could not be kept."""
    try:
        form = _decode(line)
        return _read(form)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError, binascii.Error, ValueError) as error:
        raise DocumentError("A line is not a row.", line=number, reason=str(error)) from error
    except KeyhouseError as error:
        error.fields["line"] = number
        raise


def _read(form: _Form) -> Line | Ending:
    if form.rows is not None and form.sha256 is not None:
        return Ending(form.rows, form.sha256)
    forms = (_value(form.value), _value(form.shown), _text(form.text), _bytes(form.base64))
    values = [value for value in forms if value is not None]
    if form.space is None or form.key is None or len(values) != 1:
        raise ValueError("it needs a space, a key and one value")
    if not 0 < len(form.space.encode()) <= SPACE_BYTES_MAX or "\0" in form.space:
        raise ValueError("a space's name has 1 to 255 bytes, and no U+0000")
    check_key(form.key)
    if len(values[0]) > VALUE_BYTES_MAX:
        raise LimitError("The value is too large.", key=form.key, bytes=len(values[0]), limit=VALUE_BYTES_MAX)
    if form.expires is not None and not -_TIME_MAX < form.expires < _TIME_MAX:
        raise ValueError("it expires at no time that can be kept")
    return Line(form.space, Put(form.key, values[0], form.expires), is_shown=forms[1] is not None)


def _value(raw: msgspec.Raw) -> bytes | None:
    return bytes(raw) or None


def _text(text: str | None) -> bytes | None:
    return None if text is None else text.encode()


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else base64.b64decode(text, validate=True)


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
