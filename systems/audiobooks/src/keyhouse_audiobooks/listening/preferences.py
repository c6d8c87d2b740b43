"""Preferences of a listener: any JSON, by a name that the app chooses."""

from typing import Any

from msgspec import json

from keyhouse.errors import NotFoundError, RecordError
from keyhouse.store import Transaction
from keyhouse_audiobooks.library import Library, valid_body
from keyhouse_audiobooks.limits import PREFERENCE_BYTES_MAX, PREFERENCES_MAX
from keyhouse_audiobooks.listening.messages import ShownPreference
from keyhouse_audiobooks.schema import PREFERENCE

__all__ = ["Preferences"]


class Preferences:
    def __init__(self, library: Library) -> None:
        self._library = library
        self._store = library.store

    async def all(self, user_id: str) -> list[ShownPreference]:
        entries = self._store.scan(PREFERENCE, user_id=user_id)
        return [ShownPreference(each.fields["key"], each.record) async for each in entries]

    async def get(self, user_id: str, key: str) -> Any:
        entry = await self._store.entry(PREFERENCE, user_id=user_id, key=key)
        if entry is None:
            raise NotFoundError("There is no such preference.", key=key)
        return entry.record

    async def put(self, user_id: str, key: str, value: Any) -> None:
        if len(json.encode(value)) > PREFERENCE_BYTES_MAX:
            raise RecordError("The preference is too large.", limit=PREFERENCE_BYTES_MAX)

        async def work(tx: Transaction) -> None:
            if await tx.entry(PREFERENCE, user_id=user_id, key=key) is None:
                await self._library.check_room(
                    tx, PREFERENCE, PREFERENCES_MAX, noun="preferences", user_id=user_id
                )
            await tx.put(PREFERENCE, value, user_id=user_id, key=key)

        with valid_body():
            await self._store.transact(work)

    async def delete(self, user_id: str, key: str) -> None:
        if not await self._store.delete(PREFERENCE, user_id=user_id, key=key):
            raise NotFoundError("There is no such preference.", key=key)
