"""Files of `wrangler`, the command of Cloudflare's KV store: the input of `kv bulk put`, and the
output of `kv bulk get`.

    [{"key": "cust_12345_streamkit_notes_note1", "value": "{\\"id\\":\\"note1\\",…}",
      "expiration": 1771416000}]
    {"cust_12345_streamkit_notes_note1": {"value": "{\\"id\\":\\"note1\\",…}"}}

A value is the JSON of a config or a scene as text; `expiration` is in seconds since 1970. `kv bulk
get` writes `{"value": null}` for a key that expired after it was listed, and a line `Success!`
below the JSON. This module is pure: it reads and writes no rows.
"""

import base64
import binascii
from collections.abc import Iterator
from typing import Any, Final

import msgspec

from keyhouse.errors import DocumentError, LimitError, RecordError
from keyhouse.limits import COUNTER_MAX, VALUE_BYTES_MAX
from keyhouse.schema import MILLISECONDS, Record
from keyhouse.service.bulk_import import ImportEntry
from keyhouse_streamkit.keys import find_record
from keyhouse_streamkit.limits import IMPORT_AHEAD_SECONDS_MAX
from keyhouse_streamkit.schema import (
    NO_IDS,
    SCENE_ACTIVITY,
    SCENE_ACTIVITY_SECONDS,
    SceneActivity,
)

EXPIRATION_SECONDS_MIN: Final = 120
"""Minimum lifetime of an exported entry: KV rejects a whole file for one entry that expires within
a minute. An import ignores `expiration`: a scene expires 30 days after its last use."""


class Item(msgspec.Struct, kw_only=True, omit_defaults=True):
    """One entry of a file. `name` is a member of what `kv key list` writes, which has no values."""

    key: str | None = None
    value: str | None = None
    expiration: int | None = None
    expiration_ttl: int | None = None
    metadata: msgspec.Raw | None = None
    base64: bool = False
    name: str | None = None


class Value(msgspec.Struct, kw_only=True):
    """One value of what `kv bulk get` writes."""

    value: str | None = None
    expiration: int | None = None
    metadata: msgspec.Raw | None = None


File = list[Item] | dict[str, Value | None]


def make_item(key: str, value: bytes, expires: int | None, now: int) -> Item:
    """Return the entry of a row."""
    if expires is None:
        return Item(key=key, value=value.decode())
    return Item(
        key=key,
        value=value.decode(),
        expiration=max(-(-expires // 1_000), now // 1_000 + EXPIRATION_SECONDS_MIN),
    )


def parse(file: File, now: int) -> Iterator[ImportEntry]:
    """Parse the entries of a file in order; an error names an invalid one by its number or key."""
    if isinstance(file, dict):
        for key, value in file.items():
            if value is None or value.value is None:
                yield ImportEntry(key, *_address(key, at=key))
            else:
                yield _parse(Item(key=key, value=value.value), now, at=key)
        return
    for number, each in enumerate(file):
        yield _parse(each, now, at=number)


def _parse(entry: Item, now: int, at: int | str) -> ImportEntry:
    if entry.key is None or entry.value is None:
        if entry.name is not None:
            raise RecordError(
                "This is a list of keys without values: get them with `wrangler kv bulk get`.",
                entry=at,
            )
        raise RecordError("An entry has a key and a value.", entry=at)
    customer, record, fields = _address(entry.key, at)
    try:
        value = record.json.parse(_text(entry))
        for name, named in fields.items():
            if (text := getattr(value, name)) != named:
                raise RecordError("The id in the value differs from the id in the key.", value=text)
        expires = None
        if record is SCENE_ACTIVITY:
            value, expires = _scene(value, now)
        else:
            value = _config(value, now)
        _check_size(record, value)
    except (RecordError, DocumentError, LimitError) as error:
        error.fields |= {"entry": at, "key": entry.key}
        raise
    return ImportEntry(entry.key, customer, record, fields, value, expires)


def _address(key: str, at: int | str) -> tuple[str, Record[Any], dict[str, str]]:
    """Return the customer, the record, and its id or scene name by the name of the field."""
    match = find_record(key)
    if match is None:
        raise RecordError("The key is not one of Streamkit's.", entry=at, key=key)
    record, customer, identifier = match
    return customer, record, {record.template.fields[-1]: identifier}


def json_part(text: bytes) -> bytes:
    """Return the JSON of a file without the lines that `wrangler` prints around it; all of the text
    if no line starts with JSON."""
    starts = [at for at in (_line_with(text, b"["), _line_with(text, b"{")) if at >= 0]
    end = max(text.rfind(b"]"), text.rfind(b"}"))
    return text[min(starts) : end + 1] if starts else text


def _line_with(text: bytes, mark: bytes) -> int:
    """Return the position of the first line that starts with `mark`, or -1."""
    return 0 if text.startswith(mark) else text.find(b"\n" + mark)


def _text(entry: Item) -> bytes:
    text = entry.value or ""
    try:
        return base64.b64decode(text, validate=True) if entry.base64 else text.encode()
    except (binascii.Error, ValueError):
        raise RecordError("The value is not base64, or not text.", base64=entry.base64) from None


def _config(value: Any, now: int) -> Any:
    """Return the config with its times in the stored format."""
    if value.id in NO_IDS:
        raise RecordError("Invalid id: no URL could address the config.", id=value.id)
    return msgspec.structs.replace(
        value,
        created_at=MILLISECONDS.format(_moment(value.created_at, "createdAt", now)),
        updated_at=MILLISECONDS.format(_moment(value.updated_at, "updatedAt", now)),
    )


def _scene(value: SceneActivity, now: int) -> tuple[SceneActivity, int]:
    """Return the activity with its time in the stored format, and when it expires."""
    if not 0 <= value.count <= COUNTER_MAX:
        raise RecordError("The count must be from 0 to 2^63 - 1.", count=value.count)
    last_used = _moment(value.last_used, "lastUsed", now)
    value = msgspec.structs.replace(value, last_used=MILLISECONDS.format(last_used))
    return value, last_used + SCENE_ACTIVITY_SECONDS * 1_000


def _check_size(record: Record[Any], value: Any) -> None:
    """Reject what every engine would reject, before anything of the file is written."""
    size = len(record.json.encode(value))
    if size > VALUE_BYTES_MAX:
        raise LimitError("The value is too large.", bytes=size, limit=VALUE_BYTES_MAX)


def _moment(text: str, member: str, now: int) -> int:
    """Parse a time of the file, which is required: an import keeps times and invents none."""
    if not text:
        raise RecordError(
            "The value lacks a time, which an import needs: add it to the file.", member=member
        )
    try:
        moment = MILLISECONDS.parse(text)
    except DocumentError as error:
        error.fields["member"] = member
        raise
    if moment > now + IMPORT_AHEAD_SECONDS_MAX * 1_000:
        raise RecordError(
            "A time of the value is in the future: correct it in the file.",
            member=member,
            time=text,
        )
    return moment
