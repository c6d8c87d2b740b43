"""Owners for records under test: users, authors, series, works and books that tests only need to
exist. `rows` and `holds` leave them out."""

from typing import Any

from keyhouse.schema import Record
from keyhouse.store import Store, verify
from keyhouse_audiobooks.records import Author, Book, Series, User, Work
from keyhouse_audiobooks.schema import AUTHOR, BOOK, SERIES, USER, WORK
from tests.support import store_driver

STUB = "stub "
_NAMES = ("name", "title", "username")


async def stub(store: Store, record: Record[Any], *ids: str) -> None:
    """Put records of these ids, with names that no test uses."""
    for id in ids:
        values: dict[Any, Any] = {
            USER: User(id=id, username=STUB + id, password_hash=""),
            AUTHOR: Author(id=id, name=STUB + id),
            SERIES: Series(id=id, name=STUB + id),
            WORK: Work(id=id, title=STUB + id),
            BOOK: Book(id=id, title=STUB + id),
        }
        await store.put(record, values[record])


async def rows(store: Store) -> dict[str, Any]:
    """Return every live row of the store's space, except those of stubs."""
    found = await store_driver.rows(store)
    return {key: value for key, value in found.items() if not _is_stub(key, value)}


async def holds(store: Store, expected: dict[str, Any]) -> None:
    """Assert that the space holds exactly these rows beside its stubs, and verify agrees."""
    assert await rows(store) == expected
    assert [finding async for finding in verify(store)] == []


def _is_stub(key: str, value: Any) -> bool:
    named = isinstance(value, dict) and any(
        str(value.get(name, "")).startswith(STUB) for name in _NAMES
    )
    return named or f":{STUB}" in key
