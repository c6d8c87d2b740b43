"""One transaction for as many writes of one space as fit. Pure: no I/O.

Writes are decided in order, each on the state that the ones before it leave. A key's state is known
because it was read, because an earlier write of the plan wrote it, or because a check assumes it;
an assumed state becomes a condition of the transaction. So does a state that was read, so that a
plan made from a stale state is rejected whatever the head is. Each write gets the next revision. Of
a key that several of them write, only the last state is written and logged: no reader could have
seen the others.
"""

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from keyhouse.engine import Check, Put, Row
from keyhouse.engines.batch_plan import Writes, evaluate
from keyhouse.engines.dynamodb import log
from keyhouse.engines.dynamodb.items import Condition, Items, is_live
from keyhouse.engines.dynamodb.pending import (
    OWN_ITEMS,
    TRANSACTION_ITEMS_MAX,
    DynamodbCommit,
    DynamodbRemoval,
    TransactedWrite,
)
from keyhouse.engines.watch_loop import ChangedKey
from keyhouse.errors import CounterError

ROWS_MAX: Final = TRANSACTION_ITEMS_MAX - OWN_ITEMS - 1
"""Rows in one commit: one item is for its batch id."""

GROUP_BYTES_MAX: Final = 512 * 1_024
"""Bytes of values of several writes in one transaction; a larger write has its own."""


class State(NamedTuple):
    """The rows that were read. `consistent`: at one moment, so that they need no conditions."""

    head: int
    rows: Mapping[str, Row | None]
    applied: Mapping[str, int | None]
    consistent: bool


class _Assumed(NamedTuple):
    revision: int | None


class _Step(NamedTuple):
    """The part of the plan that one write adds."""

    writes: dict[str, Put | None]
    conditions: dict[str, Condition]
    batch_id: str | None = None


class Plan:
    def __init__(self, state: State, now: int) -> None:
        self.before = state.head
        self.revision = state.head
        self.now = now
        self._consistent = state.consistent
        self.read = state.rows
        self.applied: dict[str, int | None] = dict(state.applied)
        self.rows: dict[str, Row | _Assumed | None] = dict(state.rows)
        self._writes: dict[str, Row | None] = {}
        self._changed_keys: dict[str, ChangedKey] = {}
        self._conditions: dict[str, Condition] = {}
        self._ids: dict[str, int] = {}
        self._bytes = 0

    @property
    def writes(self) -> bool:
        return self.revision > self.before

    def take(self, write: TransactedWrite) -> bool:
        """Stage the outcome of the write; return False if the transaction has no room for it."""
        step = self._commit(write) if isinstance(write, DynamodbCommit) else self._removal(write)
        if step is None:
            return True
        size = sum([len(put.value) for put in step.writes.values() if put is not None])
        if self.writes and not self._has_room(step, size):
            return False
        self._bytes += size
        self.revision += 1
        if isinstance(write, DynamodbCommit):
            write.result = self.revision
        self._conditions.update(step.conditions)
        for key, condition in step.conditions.items():
            self.rows.setdefault(key, _Assumed(condition.revision))
        for key, put in step.writes.items():
            self._write(key, put)
        if step.batch_id is not None:
            self.applied[step.batch_id] = self._ids[step.batch_id] = self.revision
        return True

    def is_uncertain(self, key: str) -> bool:
        """Return whether the row was read at another moment than others, and not written since."""
        return key in self.read and key not in self._writes and not self._consistent

    def items(self, space: str, items: Items, rows: str, token: str) -> list[dict[str, Any]]:
        """Return the items of TransactWriteItems."""
        table = log.table_of(rows)
        entry = log.Entry(self.revision, self.before, token, list(self._changed_keys.values()))
        own: list[dict[str, Any]] = [
            {"Update": {"TableName": table, **log.head_update(space, self.before, self.revision)}},
            {"Put": {"TableName": table, "Item": log.entry_item(space, entry)}},
        ]
        if not self.before:
            own.append({"Put": {"TableName": table, "Item": log.space_item(space)}})
        for batch_id, revision in self._ids.items():
            own.append(
                {
                    "Put": {
                        "TableName": table,
                        **log.applied_put(space, batch_id, revision, self.now),
                    }
                }
            )
        return own + [
            self._operation(space, key, items, rows) for key in self._writes | self._conditions
        ]

    def _operation(self, space: str, key: str, items: Items, table: str) -> dict[str, Any]:
        asked = items.condition(self._conditions[key]) if key in self._conditions else {}
        if key not in self._writes:
            return {"ConditionCheck": {"TableName": table, "Key": items.key(space, key), **asked}}
        row = self._writes[key]
        if row is None:
            return {"Delete": {"TableName": table, "Key": items.key(space, key), **asked}}
        return {"Put": {"TableName": table, "Item": items.item(space, row), **asked}}

    def _commit(self, write: DynamodbCommit) -> _Step | None:
        """Return None if the write is decided and adds nothing."""
        write.result = write.error = None
        step = _Step({}, {}, write.batch.id)
        try:
            writes = evaluate("", write.batch, _StepState(self, step.conditions))
        except CounterError as error:
            write.error = error
            return None
        if not isinstance(writes, Writes):
            write.result = writes
            return None
        step.writes.update({put.key: put for put in writes.puts})
        step.writes.update(dict.fromkeys(writes.deletes))
        return step

    def _removal(self, write: DynamodbRemoval) -> _Step | None:
        expired: dict[str, Condition] = {}
        for key in write.keys:
            row = self.read[key]
            if key not in self._writes and row is not None and not is_live(row, self.now):
                expired[key] = Condition(row.revision)
        write.result = len(expired)
        return _Step(dict.fromkeys(expired), expired) if expired else None

    def _has_room(self, step: _Step, size: int) -> bool:
        keys = (
            self._writes.keys()
            | self._conditions.keys()
            | step.writes.keys()
            | step.conditions.keys()
        )
        ids = len(self._ids) + (step.batch_id is not None)
        return (
            len(keys) + ids + OWN_ITEMS <= TRANSACTION_ITEMS_MAX
            and self._bytes + size <= GROUP_BYTES_MAX
        )

    def _write(self, key: str, put: Put | None) -> None:
        row = None if put is None else Row(key, put.value, self.revision, put.expires)
        self.rows[key] = self._writes[key] = row
        self._changed_keys.pop(key, None)
        self._changed_keys[key] = ChangedKey(
            key, self.revision, put is None, None if put is None else put.expires
        )


class _StepState:
    """The state that a write finds; collects the conditions on which it relies."""

    def __init__(self, plan: Plan, conditions: dict[str, Condition]) -> None:
        self._plan = plan
        self._conditions = conditions

    @property
    def revision(self) -> int:
        return self._plan.revision

    def applied(self, space: str, batch_id: str) -> int | None:
        return self._plan.applied.get(batch_id)

    def holds(self, space: str, check: Check) -> bool:
        plan = self._plan
        if check.key not in plan.rows:
            condition = Condition(check.revision, plan.now)
            return self._conditions.setdefault(check.key, condition) == condition
        row = plan.rows[check.key]
        if isinstance(row, Row) and not is_live(row, plan.now):
            row = None
        if (None if row is None else row.revision) != check.revision:
            return False
        self._rely(check.key)
        return True

    def counter(self, space: str, key: str) -> tuple[bytes | None, int | None]:
        row = self._plan.rows[key]
        self._rely(key)
        if not isinstance(row, Row) or not is_live(row, self._plan.now):
            return None, None
        return row.value, row.expires

    def _rely(self, key: str) -> None:
        """Add the state that was read as a condition, unless it is certain."""
        if self._plan.is_uncertain(key):
            row = self._plan.read[key]
            self._conditions[key] = Condition(None if row is None else row.revision)
