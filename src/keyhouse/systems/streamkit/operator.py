"""What an operator does with many customers at once: everything out of a store as one file of `wrangler`'s, and such a file
into a store. An operator is bound by no quota."""

from collections.abc import AsyncIterator, Collection
from typing import Final

import msgspec

from keyhouse.clock import SystemClock
from keyhouse.engine import Engine
from keyhouse.errors import DocumentError
from keyhouse.systems.streamkit.customers import Customers
from keyhouse.systems.streamkit.migration import customer_ids
from keyhouse.systems.streamkit.quota import QuotaSize
from keyhouse.systems.streamkit.transfer import Imported, exported, imported, refuse_twice
from keyhouse.systems.streamkit.versions import KeyVersion
from keyhouse.systems.streamkit.wrangler import File, Item, Read, read

__all__ = [
    "export_items",
    "import_items",
    "read_items",
]

_NO_QUOTA: Final = QuotaSize(2**63, 2**63)

_decode = msgspec.json.Decoder(File).decode


async def export_items(engine: Engine, customers: Collection[str] = ()) -> AsyncIterator[Item]:
    """Every config and scene of these customers; of all, when none is named."""
    names = sorted(customers) if customers else [name async for name in customer_ids(engine)]
    for name in names:
        async for each in exported(engine, name):
            yield each


def read_items(text: bytes, *, now: int | None = None) -> list[Read]:
    """The entries of a file. What `wrangler` prints around the JSON is passed over. `now`: none has a time behind it."""
    start = min((at for at in (_line_of(text, b"["), _line_of(text, b"{")) if at >= 0), default=-1)
    end = max(text.rfind(b"]"), text.rfind(b"}"))
    try:
        file = _decode(text[start : end + 1] if start >= 0 else text)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise DocumentError(
            "This is no file of wrangler's: a list of entries, or values by key.", reason=str(error)
        ) from None
    return list(read(file, SystemClock().now() if now is None else now))


async def import_items(
    engine: Engine, entries: Collection[Read], *, keys: KeyVersion = "v1"
) -> Imported:
    """Put them over what is there, each into its customer's space. All were read before the first is written."""
    refuse_twice(entries)
    by_customer: dict[str, list[Read]] = {}
    for each in entries:
        by_customer.setdefault(each.customer, []).append(each)
    total = Imported()
    customers = Customers(engine, _NO_QUOTA, keys)
    for name, theirs in by_customer.items():
        done = await imported(customers.get(name), theirs, keys)
        total = Imported(
            written=total.written + done.written,
            unchanged=total.unchanged + done.unchanged,
            expired=total.expired + done.expired,
        )
    return total


def _line_of(text: bytes, mark: bytes) -> int:
    """Where a line starts with this; -1: nowhere."""
    return 0 if text.startswith(mark) else text.find(b"\n" + mark)
