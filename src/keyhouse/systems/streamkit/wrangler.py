"""The files of `wrangler`, Cloudflare's command for its KV store: what `kv bulk put` reads, and what `kv bulk get` writes.

    [{"key": "cust_12345_streamkit_notes_note1", "value": "{\\"id\\":\\"note1\\",…}", "expiration": 1771416000}]
    {"cust_12345_streamkit_notes_note1": {"value": "{\\"id\\":\\"note1\\",…}"}}

A value is text that holds the JSON of a config or a scene; `expiration` is in seconds since 1970. Pure: no row is read or
written here.
"""

import base64
import binascii
from collections.abc import Iterator
from typing import Any, Final

import msgspec

from keyhouse.errors import DocumentError, LimitError, RecordError
from keyhouse.limits import COUNTER_MAX, VALUE_BYTES_MAX
from keyhouse.schema import MILLISECONDS
from keyhouse.systems.streamkit.limits import IMPORT_AHEAD_SECONDS_MAX
from keyhouse.systems.streamkit.schema import NO_IDS, SCENE_ACTIVITY_SECONDS, SceneActivity
from keyhouse.systems.streamkit.versions import PAIRS, SCENES, Pair

EXPIRATION_SECONDS_MIN: Final = 120
"""What is about to expire is given so long in a file: KV refuses all of it for one that expires within a minute. When it is
read here, a scene expires 30 days after its last use, whatever the file says."""


class Item(msgspec.Struct, kw_only=True, omit_defaults=True):
    """One entry of a file. `name` stands in what `kv key list` writes, which has no values."""

    key: str | None = None
    value: str | None = None
    expiration: int | None = None
    expiration_ttl: int | None = None
    metadata: msgspec.Raw | None = None
    base64: bool = False
    name: str | None = None


class Value(msgspec.Struct, kw_only=True):
    """One member of what `kv bulk get` writes."""

    value: str | None = None
    expiration: int | None = None
    metadata: msgspec.Raw | None = None


File = list[Item] | dict[str, Value | None]


class Read(msgspec.Struct, frozen=True):
    """What an entry is: whose, in which category, under which identifier, the record, and when it expires."""

    customer: str
    pair: Pair[Any]
    identifier: str
    record: Any
    expires: int | None


def item(key: str, value: bytes, expires: int | None, now: int) -> Item:
    """A row as an entry."""
    if expires is None:
        return Item(key=key, value=value.decode())
    return Item(
        key=key,
        value=value.decode(),
        expiration=max(-(-expires // 1_000), now // 1_000 + EXPIRATION_SECONDS_MIN),
    )


def read(file: File, now: int) -> Iterator[Read]:
    """Every entry of a file, in its order; what can't be one of ours is refused by its number or key."""
    if isinstance(file, dict):
        for key, value in file.items():
            yield _read(Item(key=key, value=None if value is None else value.value), now, at=key)
        return
    for number, each in enumerate(file):
        yield _read(each, now, at=number)


def _read(entry: Item, now: int, at: int | str) -> Read:
    if entry.key is None or entry.value is None:
        if entry.name is not None:
            raise RecordError(
                "This is a list of keys, without values: get those with `wrangler kv bulk get`.",
                entry=at,
            )
        raise RecordError("An entry has a key and a value.", entry=at)
    for pair in PAIRS.values():
        for record in (pair.v1, pair.v2):
            if (found := record.template.split(entry.key)) is not None:
                customer, identifier = str(found[0]), str(found[1])
                try:
                    return _storable(
                        _placed(customer, pair, identifier, pair.v1.parse(_text(entry)), now)
                    )
                except (RecordError, DocumentError, LimitError) as error:
                    error.fields |= {"entry": at, "key": entry.key}
                    raise
    raise RecordError("The key is none of Streamkit's.", entry=at, key=entry.key)


def _text(entry: Item) -> bytes:
    text = entry.value or ""
    try:
        return base64.b64decode(text, validate=True) if entry.base64 else text.encode()
    except (binascii.Error, ValueError):
        raise RecordError("The value is not base64, or not text.", base64=entry.base64) from None


def _placed(customer: str, pair: Pair[Any], identifier: str, value: Any, now: int) -> Read:
    """The record as it will be stored: called what its key says, with times in the one form that there is."""
    if getattr(value, pair.field) != identifier:
        raise RecordError(
            "The value is called another thing than its key.", value=getattr(value, pair.field)
        )
    if pair is SCENES:
        return _scene(customer, identifier, value, now)
    if identifier in NO_IDS:
        raise RecordError("A config can't be called so: no URL would lead to it.", id=identifier)
    value = msgspec.structs.replace(
        value,
        created_at=MILLISECONDS.format(_moment(value.created_at, "createdAt", now)),
        updated_at=MILLISECONDS.format(_moment(value.updated_at, "updatedAt", now)),
    )
    return Read(customer, pair, identifier, value, None)


def _scene(customer: str, name: str, value: SceneActivity, now: int) -> Read:
    if not 0 <= value.count <= COUNTER_MAX:
        raise RecordError(
            "No scene was switched to so often: a count is from 0 to 2^63 - 1.", count=value.count
        )
    last_used = _moment(value.last_used, "lastUsed", now)
    value = msgspec.structs.replace(value, last_used=MILLISECONDS.format(last_used))
    return Read(customer, SCENES, name, value, last_used + SCENE_ACTIVITY_SECONDS * 1_000)


def _storable(read: Read) -> Read:
    """What every engine would refuse is refused here, before anything of the file is written."""
    size = len(read.pair.v1.encode(read.record))
    if size > VALUE_BYTES_MAX:
        raise LimitError("The value is too large.", bytes=size, limit=VALUE_BYTES_MAX)
    return read


def _moment(text: str, member: str, now: int) -> int:
    """A time that the file must bring along: an import keeps times, and makes none up."""
    if not text:
        raise RecordError(
            "The value lacks a time: an import keeps times, so add it to the file.", member=member
        )
    try:
        moment = MILLISECONDS.parse(text)
    except DocumentError as error:
        error.fields["member"] = member
        raise
    if moment > now + IMPORT_AHEAD_SECONDS_MAX * 1_000:
        raise RecordError(
            "The value has a time that is still to come: correct it in the file.",
            member=member,
            time=text,
        )
    return moment
