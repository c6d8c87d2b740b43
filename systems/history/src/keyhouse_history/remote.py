"""A profile through the service: `keyhouse list history --store http://host:8080 --token …`.

The API has the entries, without revisions: derived rows are not shown. An entry is written by the
rules for events, so one that is older than the stored entry changes nothing.
"""

import asyncio
from typing import Final

from keyhouse.advice import service_url
from keyhouse.errors import NotFoundError, RevisionError, UnknownOutcomeError, UsageError
from keyhouse.service.http_client import tenant_of_token, translated
from keyhouse.service.remote import RemoteRow
from keyhouse.service.row_remote import ListedRemote
from keyhouse.store import ANY, Unset
from keyhouse_history.client import History, StoredViewing
from keyhouse_history.schema import ENTRY, HistoryEntry

__all__ = ["connect", "space_of"]

TENANT_CLAIMS: Final = ("profileId", "sub")
"""Claims that name the profile, by default: the first that a token has."""


async def connect(url: str, space: str, token: str | None) -> "EntryRemote":
    """Return the remote of one profile. Sends nothing yet."""
    url = service_url(url, "/history")
    if token is None:
        raise UsageError(
            "History requires a token: --token, or KEYHOUSE_TOKEN; `keyhouse token` makes one."
        )
    return EntryRemote(History(url, space, token=token))


def space_of(token: str) -> str:
    return tenant_of_token(token, TENANT_CLAIMS, system="history --customer ID")


class EntryRemote(ListedRemote[History]):
    no_watch = (
        "Watch a profile with `curl -N …/watch`, or its rows, with the engine or the data folder as"
        " --store."
    )

    async def get(self, key: str) -> RemoteRow | None:
        state, asset = _address(key)
        with translated():
            try:
                entries = await asyncio.to_thread(self._client.get, asset)
            except NotFoundError:
                return None
        return next((_row(each) for each in entries if each.attr.state == state), None)

    async def put(
        self, key: str, value: bytes, *, ttl: int | None, expect: int | Unset | None
    ) -> RemoteRow:
        state, asset = _address(key)
        entry = ENTRY.json.parse(value)
        if ttl is not None or expect is not ANY:
            raise UsageError("An entry has no time to live, and its API no revisions.", key=key)
        if (entry.attr.state, entry.attr.asset_id) != (state, asset):
            raise UsageError("The state or asset in the value differs from the key.", key=key)
        with translated(UnknownOutcomeError):
            stored = await asyncio.to_thread(self._put, entry)
        if not stored.stored:
            raise RevisionError(
                "The profile is full, and has only newer entries: raise entries_max.", key=key
            )
        if not stored.applied:
            raise RevisionError(
                "The event changes nothing: the stored entry is the same, or newer.", key=key
            )
        return _row(stored.entry)

    def _put(self, entry: HistoryEntry) -> StoredViewing:
        attr = entry.attr
        return self._client.put(
            attr.asset_id,
            asset_type=attr.asset_type,
            total_time=attr.total_time,
            progress=attr.progress,
            at=attr.update_time,
            state=attr.state,
            ext=entry.ext,
        )

    async def delete(self, key: str, *, expect: int | Unset | None) -> bool:
        raise UsageError(
            "The API deletes an asset with both entries: DELETE …/assets/ID,"
            " or delete one in the engine or the data folder, as --store.",
            key=key,
        )

    def read_all(self) -> list[RemoteRow]:
        in_progress, completed = self._client.entries("resume"), self._client.entries("watched")
        return [_row(each) for entries in (in_progress, completed) for each in entries]


def _address(key: str) -> tuple[str, str]:
    fields = ENTRY.template.parse(key)
    if fields is None:
        raise UsageError(
            "The service has entries only: for their other rows, name the engine or the data folder"
            " as --store.",
            key=key,
        )
    return str(fields["state"]), str(fields["asset"])


def _row(entry: HistoryEntry) -> RemoteRow:
    key = ENTRY.template.build({"state": entry.attr.state, "asset": entry.attr.asset_id})
    return RemoteRow(key, ENTRY.json.encode(entry))
