"""The transaction of a step that replaces records of an older declaration.

Theory of operation. A migration visits the records of `over`, in the order of their keys. If `over`
is an older declaration, the row at the visited key is of that declaration until the step replaces
it, so only the older declaration decodes it and knows the rows derived from it:

    rows of the record      removed or changed as      added or changed as
    its own row             the older one reads it     the newer one writes it
    rows that it owns       the older one derives      the newer one derives
    rows that it shares     the older one contributes  the newer one contributes
    counts                  left alone: `migrate` counts again when the step has visited all

A row that both derive is merged once, with both contributions, so a First keeps its holder. The new
record keeps the time of its creation, its expiry, and the members that neither declaration knows.

Other records are half migrated meanwhile: records with smaller keys were visited, records with
greater keys were not. A Unique row whose holder is still to be visited is taken over, because the
holder gives it up when its turn comes. A list that is still of the older shape is replaced by a new
one: every record that belongs into it is visited.
"""

from contextlib import suppress
from types import SimpleNamespace
from typing import Any, TypeVar

import msgspec
from msgspec.structs import replace

from keyhouse.errors import DataError, DocumentError, NewerError, UniqueError
from keyhouse.schema import BoundDerived, BoundRecord, KeyValues
from keyhouse.store.entry import ANY, Entry, Unset
from keyhouse.store.stored_keys import written_key
from keyhouse.store.writes.transaction import Transaction
from keyhouse.store.writes.write_plan import (
    SharedRowChange,
    WritePlan,
    replaced_changes,
    stored_rows,
)

T = TypeVar("T")


class StepTransaction(Transaction):
    """A transaction whose step is called for one record of an older declaration at a time."""

    __slots__ = ("_former", "_is_in_key_order", "_newer", "_visited")

    _former: BoundRecord[Any]
    _visited: Entry[Any] | None
    _newer: BoundRecord[Any] | None
    _is_in_key_order: bool

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._visited = self._newer = None

    def visit(self, former: BoundRecord[Any], entry: Entry[Any], *, in_key_order: bool) -> None:
        """Take the row of an entry to be of an older bound declaration, until it is replaced."""
        self._former, self._visited, self._newer = former, entry, None
        self._is_in_key_order = in_key_order

    async def apply(self, plan: WritePlan[T], expect: int | Unset | None = ANY) -> Entry[T]:
        bound, key = plan.bound, plan.key
        if not self._is_former(bound, key):
            return await super().apply(plan, expect)
        former, visited, rows = self._former, self._visited, self.rows
        assert visited is not None
        stored = await self.records.stored(former, key, plan.key_values)
        if expect is not ANY:
            self._check_expected(key, self.records.replaced(former, stored), expect)
        key = await written_key(rows, self.binding, bound, key)
        after, put = _kept_plan(former, visited, plan, self.now).row(
            key, replace(visited, stored=None), self.now
        )
        if stored is not None and stored.key != key:
            rows.writes[stored.key] = None
        rows.writes[key] = put
        self._newer = bound
        await self._replace_rows(former, stored, bound, after)
        self._visited = None
        if self.links is not None and not plan.is_restored:
            self.links.note_replaced(former, stored, bound, after)
        return after

    async def _delete(
        self, bound: BoundRecord[Any], key: str, expect: int | Unset | None, fields: dict[str, Any]
    ) -> KeyValues | None:
        former = self._former if self._is_former(bound, key) else bound
        return await super()._delete(former, key, expect, fields)

    def _is_former(self, bound: BoundRecord[Any], key: str) -> bool:
        """Return whether the row at a key of this record is of the older declaration."""
        return (
            self._visited is not None
            and bound is not self._former
            and key == self._former.key_of(self._visited.key)
        )

    # Derived rows

    async def _replace_rows(
        self,
        former: BoundRecord[Any],
        stored: Entry[Any] | None,
        bound: BoundRecord[Any],
        after: Entry[Any],
    ) -> None:
        self.rows.writes |= replaced_changes(former, stored, bound, after)
        removed: dict[str, tuple[BoundDerived, Any]] = {}
        if stored is not None:
            for derived in former.shared_rows:
                if derived.strategy == "merge":
                    rows = stored_rows(derived, stored)
                    removed |= {key: (derived, row) for key, row in rows.items()}
        added: dict[str, tuple[BoundDerived, Any]] = {}
        for derived in bound.shared_rows:
            if derived.strategy == "merge":
                rows = derived.rows(after.record, after.values)
                added |= {key: (derived, row) for key, row in rows.items()}
        for key, (derived, row) in removed.items():
            if not _is_same_kind(derived, added.get(key)):
                assert stored is not None
                await self.merge(SharedRowChange(former, derived, key, stored.values, row, None))
        for key, (derived, row) in added.items():
            was = removed.get(key)
            gone = was[1] if was is not None and _is_same_kind(derived, was) else None
            await self.merge(
                SharedRowChange(bound, derived, key, after.values, gone, row, after.expires)
            )

    async def merge(self, change: SharedRowChange) -> None:
        """Merge a change into a shared row, which may hold contributions of both declarations."""
        if self._newer is None or self._visited is None:  # it is of another record
            await super().merge(change)
            return
        derived, key, added = change.derived, change.key, change.added
        try:
            await super().merge(change)
        except NewerError:
            raise
        except UniqueError:
            if not await self._is_held_by_unvisited(change):
                raise
            await self._take_over(change)
        except DataError:
            if derived.has_one_holder:
                raise
            if added is None:
                return  # it is of the newer shape already, without the record
            await self._take_over(change)
        if not derived.has_one_holder and added is None and self.binding.find(key) is None:
            row = await self.row(key)
            if row is not None and not derived.owners(key, row[0]):
                self.write(key, None)  # a truncated list: those that it lacks leave it too

    async def _take_over(self, change: SharedRowChange) -> None:
        """Write the row with nothing but this contribution."""
        self.write(change.key, None)
        await super().merge(replace(change, removed=None))

    async def _is_held_by_unvisited(self, change: SharedRowChange) -> bool:
        row = await self.row(change.key)
        assert row is not None and self._visited is not None
        [[values, *_], *_] = change.derived.owners(change.key, row[0])
        holder = change.bound.template.join(values)
        own = self._former.key_of(self._visited.key)
        return self._is_in_key_order and holder > own and holder not in self.rows.writes

    async def still_listed(self, change: SharedRowChange) -> bool:
        bound = change.bound
        if self._newer is None or self._visited is None or bound is not self._former:
            return await super().still_listed(change)
        own = bound.key_of(self._visited.key)
        for sibling in change.derived.siblings(change.key_values):
            owner = bound.template.join(sibling)
            is_visited = self._is_in_key_order and owner < own
            of = self._newer if is_visited else bound
            rows = of.derived if is_visited else (change.derived,)
            entry = await self.records.entry(of, owner, sibling)
            if entry is not None and any(change.key in stored_rows(each, entry) for each in rows):
                return True
        return False


def _is_same_kind(derived: BoundDerived, other: tuple[BoundDerived, Any] | None) -> bool:
    """Return whether both contribute to a shared row in the same form."""
    return other is not None and (
        type(derived) is type(other[0]) or (derived.has_one_holder and other[0].has_one_holder)
    )


def _kept_plan(
    former: BoundRecord[Any], visited: Entry[Any], plan: WritePlan[T], now: int
) -> WritePlan[T]:
    """Return the plan with what the new record keeps of the older one: the time of its creation,
    its expiry, and the members that neither declaration knows."""
    bound, value, document, expires = plan.bound, plan.value, plan.document, plan.expires
    if document is None and bound.keeps_unknown and visited.stored is not None:
        document = former.json.kept_for(bound.json, visited.stored)
    if not plan.is_restored:
        value = bound.stamp(value, _creation(former, visited, bound, value), now)  # type: ignore[arg-type]  # it has the attribute that is read
        expires = _expires(former, visited, bound, value, plan.ttl, now)
    return replace(plan, value=value, document=document, is_restored=True, expires=expires)


def _creation(
    former: BoundRecord[Any], visited: Entry[Any], bound: BoundRecord[Any], value: Any
) -> object:
    """Return an object with the time of creation that the new record is stamped with; None: now.

    It is that of the older record; if that has none, the one that the step gave.
    """
    if bound.declared.created is None:
        return None
    if former.declared.created is None:
        time = getattr(value, bound.declared.created)
    else:
        time = getattr(visited.record, former.declared.created)
        with suppress(DocumentError):  # another program may have written it
            time = bound.declared.times.format(former.declared.times.parse(time))
    if time is None or time is msgspec.UNSET or time == "":
        return None
    return SimpleNamespace(**{bound.declared.created: time})


def _expires(
    former: BoundRecord[Any],
    visited: Entry[Any],
    bound: BoundRecord[Any],
    value: Any,
    ttl: float | None,
    now: int,
) -> int | None:
    """Return the expiry of the new record: that of the older one, unless the step or a field of
    the record says otherwise."""
    has_rule = bound.expiry is not None and bound.expiry.mode != "field"
    if ttl is None and has_rule and former.expiry is not None and visited.expires is not None:
        return visited.expires
    return bound.expires(value, None, ttl, now)
