"""Lists of configs: page by page, in the order of their ids, all of them or those that changed since a time.

There is no index by time. `since` reads one category of one customer, some hundreds of rows, and looks at nothing of each
but its `updatedAt`: see the guide for what that costs.
"""

import base64
import binascii
from typing import Final

import msgspec

from keyhouse.engine import Engine
from keyhouse.errors import CursorError, KeyFieldError, UnreadableError, UsageError
from keyhouse.limits import PAGE_ROWS_MAX
from keyhouse.schema import MILLISECONDS
from keyhouse.systems.streamkit.limits import LIST_BYTES_MAX
from keyhouse.systems.streamkit.versions import CONFIG_PAIRS, Pair

_MARK: Final = b"\x01"
"""The first byte of a cursor, so that its form can change."""


class _Times(msgspec.Struct, rename="camel"):
    updated_at: str


_times = msgspec.json.Decoder(_Times).decode


class Listed(msgspec.Struct, frozen=True):
    """Ids with their configs' JSON, or with `None` where only ids were asked for. `cursor`: what follows."""

    configs: list[tuple[str, bytes | None]]
    cursor: str | None = None


async def listed(
    engine: Engine,
    customer: str,
    category: str,
    *,
    limit: int = PAGE_ROWS_MAX,
    cursor: str | None = None,
    since: str | None = None,
    ids_only: bool = False,
) -> Listed:
    """Up to `limit` configs, or as many as have 8 MiB. `since`: those whose `updatedAt` is that or later."""
    if not 1 <= limit <= PAGE_ROWS_MAX:
        raise UsageError("A page has 1 to 10,000 configs.", limit=limit, most=PAGE_ROWS_MAX)
    pair = CONFIG_PAIRS[category]
    moment = None if since is None else MILLISECONDS.format(MILLISECONDS.parse(since))
    after = None if cursor is None else _opened(pair, customer, cursor)
    found: list[tuple[str, bytes | None]] = []
    size = 0
    async for id, row in pair.rows(
        engine, customer, after=after, keys_only=ids_only and moment is None
    ):
        if moment is not None and _updated(row.key, row.value) < moment:
            continue
        if len(found) == limit or (found and size + len(row.value) > LIST_BYTES_MAX):
            return Listed(found, _cursor(found[-1][0]))
        found.append((id, None if ids_only else row.value))
        size += 0 if ids_only else len(row.value)
    return Listed(found)


def _updated(key: str, value: bytes) -> str:
    try:
        return _times(value).updated_at
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise UnreadableError(
            "A stored row is not a config; see `keyhouse verify`.", key=key
        ) from error


def _cursor(id: str) -> str:
    return base64.urlsafe_b64encode(_MARK + id.encode()).decode().rstrip("=")


def _opened(pair: Pair[object], customer: str, cursor: str) -> str:
    """The id behind which the page starts. Whoever makes one up starts behind that id, among their own configs."""
    try:
        text = base64.b64decode(
            cursor.encode("ascii") + b"=" * (-len(cursor) % 4), b"-_", validate=True
        )
        id = text.removeprefix(_MARK).decode()
        pair.v1.template.join((customer, id))
    except (binascii.Error, ValueError, KeyFieldError):
        raise CursorError(
            "Not a cursor: pass one exactly as a page gave it.", cursor=cursor
        ) from None
    if not text.startswith(_MARK):
        raise CursorError("Not a cursor: pass one exactly as a page gave it.", cursor=cursor)
    return id
