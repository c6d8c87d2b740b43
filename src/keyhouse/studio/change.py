"""A change of one record: its preview is the Batch of the same transaction that commits it.

Every change is in the journal, with the record as it was; an undo is a change too.
"""

import asyncio
from collections.abc import Sequence
from typing import Any, Final

import msgspec

from keyhouse.engine import Row
from keyhouse.errors import (
    DocumentError,
    KeyhouseError,
    NotFoundError,
    UnknownOutcomeError,
    UsageError,
)
from keyhouse.schema import KeyMatch, Record
from keyhouse.store import RowChange, Store, Transaction, Unset
from keyhouse.studio.catalog import StudioSystem, SystemCatalog, is_editable
from keyhouse.studio.journal import Journal
from keyhouse.studio.private_keys import KeyView
from keyhouse.studio.rendering import MASK, hidden_members, pretty
from keyhouse.studio.schema import JournalLine

ABSENT: Final = "absent"

UNDOABLE: Final = ("save", "delete", "undo")
"""Actions of journal lines that are changes of one record."""

PREVIEW_ROWS_MAX: Final = 200
PREVIEW_CHARS_MAX: Final = 1_024 * 1_024
"""Rows of a preview, and their values together: a commit may have 10,000 rows."""

_RAW = msgspec.json.Decoder(dict[str, msgspec.Raw])
_MASKED: Final = msgspec.Raw(msgspec.json.encode(MASK))


class RowDifference(msgspec.Struct):
    """A row that a save writes. None: absent."""

    key: str
    action: str
    before: str | None
    after: str | None


class Preview(msgspec.Struct):
    """The Batch that a save commits now. `rows` are those whose value changes, up to `rows_max` and
    `PREVIEW_CHARS_MAX`, and `more` the number of others; `kept` are put with the value that they
    have."""

    checks: list[str]
    puts: list[str]
    deletes: list[str]
    adds: list[str]
    rows: list[RowDifference]
    kept: int
    more: int = 0
    rows_max: int = PREVIEW_ROWS_MAX


class RecordChange:
    """A put of `text`, or a deletion if that is None, that expects a revision.

    Private and sealed members that the text does not have stay as they are; `is_whole`: the text is
    a stored value and has them. `row` is the record as it is now. Without `ttl` a record that was
    written with one keeps its expiry, unless it `never_expires`.
    """

    def __init__(
        self,
        store: Store,
        match: KeyMatch,
        key: str,
        row: Row | None,
        text: bytes | None,
        *,
        expect: int | Unset | None,
        ttl: float | None = None,
        never_expires: bool = False,
        is_whole: bool = False,
    ) -> None:
        self.store = store
        self.key = key
        self.row = row
        self._match = match
        self._record: Record[Any] = match.record.declared
        self._text = text
        self._expect = expect
        self._ttl = ttl
        self._never_expires = never_expires
        self._is_whole = is_whole

    @property
    def stored_text(self) -> str | None:
        return None if self.row is None else self.row.value.decode(errors="backslashreplace")

    async def preview(self, view: KeyView) -> Preview:
        """Return the Batch of this change as an operator may see it, without committing it. Raises
        LinkError as it would."""
        async with self.store.transaction() as tx:
            await self._apply(tx)
            await tx.check_links()
            batch = tx.rows.batch()
            changes = await tx.rows.changes()
            tx.discard()
        changed = [each for each in changes if each.before != each.after]
        rows = self._differences(changed, view)
        return Preview(
            checks=[
                f"{view.key(check.key)} "
                + (ABSENT if check.revision is None else f"at {check.revision}")
                for check in batch.checks
            ],
            puts=[view.key(put.key) for put in batch.puts],
            deletes=[view.key(key) for key in batch.deletes],
            adds=[f"{view.key(add.key)} {add.by:+d}" for add in batch.adds],
            rows=rows,
            kept=sum(each.before == each.after is not None for each in changes),
            more=len(changed) - len(rows),
        )

    def _differences(self, changes: Sequence[RowChange], view: KeyView) -> list[RowDifference]:
        """Return the first changes, as far as a page shows them; the record itself always."""
        rows: list[RowDifference] = []
        chars = 0
        for each in sorted(changes, key=lambda each: each.key != self.key):
            before, after = _image(view, each.key, each.before), _image(view, each.key, each.after)
            chars += len(before or "") + len(after or "")
            if rows and (len(rows) == PREVIEW_ROWS_MAX or chars > PREVIEW_CHARS_MAX):
                break
            action = "put" if each.after is not None else "delete"
            rows.append(RowDifference(view.key(each.key), action, before, after))
        return rows

    async def commit(self) -> int:
        """Commit, and return the revision."""
        async with self.store.transaction() as tx:
            await self._apply(tx)
        return tx.revision

    async def read_committed(self) -> str | None:
        """Return the record's row after the commit; None if it is deleted."""
        row = None if self._text is None else await self.store.row(self.key)
        return None if row is None else row.value.decode(errors="backslashreplace")

    async def _apply(self, tx: Transaction) -> None:
        fields: dict[str, Any] = self._match.fields
        if self._text is None:
            if not await tx.delete(self._record, expect=self._expect, **fields):
                raise NotFoundError("The record does not exist.", key=self.key)
            return
        ttl = self._ttl
        if ttl is None and not self._never_expires:
            ttl = self._ttl_left(tx.now)
        await tx.put(self._record, self._value(self._text), ttl=ttl, expect=self._expect, **fields)

    def _value(self, text: bytes) -> Any:
        if self._is_whole:
            return self._match.record.decode(text, self.key)
        hidden = hidden_members(self._record)
        if hidden and self.row is not None:
            opened = self._record.json.plain(self._match.record.decode(self.row.value, self.key))
            given, changed = _members(text), members_set(text, hidden)
            kept = {
                name: msgspec.Raw(msgspec.json.encode(opened[name]))
                for name in hidden
                if name in opened and name not in changed
            }
            shown = {name: raw for name, raw in given.items() if name not in hidden}
            text = msgspec.json.encode({**shown, **{name: given[name] for name in changed}, **kept})
        return self._record.json.parse(text)

    def _ttl_left(self, now: int) -> float | None:
        """Return the seconds that a record with a TTL still has, so that its expiry stays."""
        expiry = self._record.expiry
        if expiry is None or expiry.mode != "write" or self.row is None or not self.row.expires:
            return None
        return max(1, self.row.expires - now) / 1_000


def _image(view: KeyView, key: str, value: bytes | None) -> str | None:
    """Return the value of a row for a page, without private members of any record."""
    if value is None:
        return None
    match = view.find(key)
    shown = view.value(key, value)
    if match is None or not match.is_record:
        return shown.decode(errors="replace")
    return pretty(shown)[0]


def members_set(text: bytes, hidden: Sequence[str]) -> list[str]:
    """Return the hidden members that the text has with another value than the mask."""
    given = _members(text)
    return [name for name in hidden if name in given and bytes(given[name]) != bytes(_MASKED)]


def _members(text: bytes) -> dict[str, msgspec.Raw]:
    try:
        return _RAW.decode(text)
    except msgspec.ValidationError:
        raise DocumentError("The value is not a JSON object.") from None


class Changes:
    """Commits changes and their undos, each with a line of the journal."""

    def __init__(self, catalog: SystemCatalog, journal: Journal) -> None:
        self._catalog = catalog
        self._journal = journal

    def editable(self, system: str, space: str, key: str) -> tuple[StudioSystem, Store, KeyMatch]:
        """Return where a record is stored. Raises UsageError for the key of another row."""
        served = self._catalog.system(system)
        store, match = self._catalog.find(served, space, key)
        if match is None or not is_editable(store, match):
            raise UsageError("Only records can be edited, by the key of the record.", key=key)
        return served, store, match

    async def commit(
        self, operator: str, action: str, system: str, change: RecordChange, job: str = ""
    ) -> None:
        """Commit a change, of a job if one is given.

        The journal has it before, so that no change is without a line. A cancelled caller, such as
        a job, waits until the line has the outcome: else the change could not be undone."""
        row = change.row
        line = await self._journal.write(
            operator,
            action,
            system=system,
            space=change.store.space,
            key=change.key,
            job=job,
            before=change.stored_text,
            revision_before=None if row is None else row.revision,
            expires_before=None if row is None else row.expires,
        )
        finishing = asyncio.ensure_future(self._finish(line, change))
        try:
            await asyncio.shield(finishing)
        except asyncio.CancelledError:
            await asyncio.wait([finishing])
            raise

    async def _finish(self, line: str, change: RecordChange) -> None:
        try:
            revision = await change.commit()
        except UnknownOutcomeError:
            raise  # it may be committed: the line stays, without an outcome
        except KeyhouseError:
            await self._journal.drop(line)
            raise
        await self._journal.complete(line, revision, await change.read_committed())

    async def delete(self, operator: str, system: str, space: str, key: str, job: str) -> bool:
        """Delete a record as it is now; return whether it was there."""
        _, store, match = self.editable(system, space, key)
        row = await store.row(key)
        if row is None:
            return False
        change = RecordChange(store, match, key, row, None, expect=row.revision)
        await self.commit(operator, "delete", system, change, job)
        return True

    async def undo(self, operator: str, line: JournalLine, job: str = "") -> None:
        """Put a record back as it was before a change.

        Raises RevisionError if somebody has changed it since.
        """
        if line.revision is None or (line.before is None and line.revision_before is not None):
            raise UsageError("The journal does not have the value as it was: it is too large.")
        _, store, match = self.editable(line.system, line.space, line.key)
        change = RecordChange(
            store,
            match,
            line.key,
            await store.row(line.key),
            None if line.before is None else line.before.encode(),
            # a save leaves the record, even if its new value is too large for the journal
            expect=line.revision if line.action == "save" or line.after is not None else None,
            ttl=_ttl_before(line, match.record.declared, store.engine.clock.now()),
            is_whole=True,
        )
        await self.commit(operator, "undo", line.system, change, job)


def _ttl_before(line: JournalLine, record: Record[Any], now: int) -> float | None:
    """Return the seconds that a record with its own TTL would still have."""
    if line.before is None or line.expires_before is None:
        return None
    if record.expiry is None or record.expiry.mode not in ("write", "fixed"):
        return None
    if line.expires_before <= now:
        raise UsageError("The record would have expired by now.", key=line.key)
    return (line.expires_before - now) / 1_000
