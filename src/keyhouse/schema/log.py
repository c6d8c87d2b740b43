"""Logs: append-only events in time order, each folded once into snapshots and counters."""

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import msgspec

from keyhouse.advice.arguments import checked
from keyhouse.errors import DeclarationError
from keyhouse.keys.template import Template
from keyhouse.schema.counter import Counter
from keyhouse.schema.record import Record

T = TypeVar("T")


class FoldResult(msgspec.Struct):
    """The effect of one event: the next state, records to put, and counters to add to, each with
    its key fields."""

    state: Any
    puts: list[tuple[Record[Any], Any, dict[str, Any]]] = []
    adds: list[tuple[Counter, int, dict[str, Any]]] = []


class LogState(msgspec.Struct, kw_only=True):
    """Base of a log's state. `through` is the last event that was folded; subclasses add what
    folding needs."""

    through: str


Fold = Callable[[Any, Any, Mapping[str, Any]], FoldResult]
"""`fold(state, event, found)`: pure. `state` is None before the first event; the store sets its
`through`."""


class Log(Record[T]):
    """Events of one stream (the leading fields of the key) in the order of the last field.

    - The last field is a ULID from the store, always greater than the last one folded; or, with
      `sequence`, the next number of that counter (whose key has the stream's fields).
    - `fold` and `state` (a record at the stream's fields, its type a LogState) go together:
      appending an event, folding it and advancing the state's `through` are one commit, so an event
      counts once however often the work is retried.
    - `needs` names records that folding reads: `lambda event: {"book": (BOOK, {"id":
      event.book_id})}`.
    """

    kind = "log"
    appended = True

    @checked(DeclarationError)
    def __init__(
        self,
        type: type[T],
        at: str | Template,
        *,
        sequence: Counter | None = None,
        state: Record[Any] | None = None,
        fold: Fold | None = None,
        needs: Callable[[Any], Mapping[str, tuple[Record[Any], dict[str, Any]]]] | None = None,
        **options: Any,
    ) -> None:
        super().__init__(type, at, **options)
        self.sequence = sequence
        self.state = state
        self.fold = fold
        self.needs = needs
        if not self.template.fields:
            raise DeclarationError(
                "The key of a log has a field that orders its events.", log=self.name
            )
        self.stream = self.template.fields[:-1]
        self.order = self.template.fields[-1]
        """The field that orders the events of a stream."""
        self.is_order_held = self.holder(self.order) is not None
        if (state is None) != (fold is None):
            raise DeclarationError("A log that folds has both a fold and a state.", log=self.name)
        if state is not None and not issubclass(state.type, LogState):
            raise DeclarationError("The type of a log's state is a LogState.", log=self.name)
        if state is not None and sequence is not None:
            raise DeclarationError(
                "A log that counts its sequence can't fold: its events have no time.", log=self.name
            )
