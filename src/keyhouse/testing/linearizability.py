"""A checker of linearizability: does a recorded history have an order that explains every result?

Theory of operation
-------------------
A history is a set of operations, each with the time at which it was called, the time at which it
returned, and what it may do to a state. It is linearizable if each operation can be given one
moment between call and return, so that applied in the order of these moments every operation has
the result that was recorded (Herlihy and Wing). An operation whose outcome is unknown, after a
timeout, has no return: it may take effect at any later moment, or never.

The search is that of Wing and Gong: of the operations that were called before the first return,
take one that is possible in the current state, and continue without it; undo the last one if
none is. Lowe's
addition makes it usable: a set of operations that leads to a state that was seen with it before is
not tried again.

| the first event left is | and the operation              | then                              |
|-------------------------|--------------------------------|-----------------------------------|
| a call                  | is possible, and is new        | take it, begin at the first event |
| a call                  | is impossible, or was tried    | look at the next event            |
| a return                | has not been taken             | undo the last one that was taken  |
| no return               | (the others are unknown)       | the history is linearizable       |

Objects that no operation has in common are independent (linearizability is local), so each is
searched alone: `keys` of an operation name its objects, and a batch over two keys makes one object
of both.

    history = [
        Recorded(("x",), 1, 4, lambda state: state | {"x": 1}),                      # put x = 1
        Recorded(("x",), 5, 6, lambda state: state if state.get("x") == 1 else None),  # read 1
    ]
    assert check(history).is_linearizable
"""

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import Any, Final

import msgspec

__all__ = ["Recorded", "Verdict", "check"]

STEPS_MAX: Final = 2_000_000
"""States tried for one object before the search ends undecided."""

ObjectState = Mapping[str, Hashable]


class Recorded(msgspec.Struct, frozen=True):
    """One operation of a history.

    `apply` returns the state after it, or None if the recorded result is not possible in that
    state; it must not change its argument. `returned` is None if the outcome is unknown. Of two
    operations one precedes the other if it returned before the other was called, so equal times
    are concurrent.
    """

    keys: tuple[str, ...]
    called: float
    returned: float | None
    apply: Callable[[ObjectState], ObjectState | None]
    text: str = ""


class Verdict(msgspec.Struct, frozen=True):
    """`violation` are the operations of one object that no order explains, by their calls.
    `undecided` are objects whose search was given up: count them as failures."""

    violation: Sequence[Recorded] = ()
    undecided: Sequence[tuple[str, ...]] = ()
    operations: int = 0
    steps: int = 0

    @property
    def is_linearizable(self) -> bool:
        return not self.violation and not self.undecided

    def __str__(self) -> str:
        if self.is_linearizable:
            return f"{self.operations} operations are linearizable ({self.steps} states)"
        if not self.violation:
            return f"undecided after {self.steps} states: {self.undecided}"
        lines = [
            f"  {each.called:g} to {'?' if each.returned is None else f'{each.returned:g}'}"
            f"  {each.text}"
            for each in self.violation
        ]
        return "\n".join(["no order explains these results:", *lines])


def check(history: Iterable[Recorded], *, steps_max: int = STEPS_MAX) -> Verdict:
    """Search an order for each object of the history. The initial state of each is empty."""
    operations, steps = 0, 0
    undecided: list[tuple[str, ...]] = []
    for keys, of_object in _objects(history):
        operations += len(of_object)
        search = _Search(of_object, steps_max)
        found = search.run()
        steps += search.steps
        if found is None:
            undecided.append(keys)
        elif not found:
            return Verdict(search.shortest_violation(), undecided, operations, steps)
    return Verdict((), undecided, operations, steps)


def _objects(history: Iterable[Recorded]) -> list[tuple[tuple[str, ...], list[Recorded]]]:
    """Return the operations by object: keys that occur together belong to one object."""
    root: dict[str, str] = {}

    def find(key: str) -> str:
        root.setdefault(key, key)
        while root[key] != key:
            root[key] = key = root[root[key]]
        return key

    operations = list(history)
    for each in operations:
        for key in each.keys[1:]:
            root[find(key)] = find(each.keys[0])
    of_object: defaultdict[str, list[Recorded]] = defaultdict(list)
    for each in operations:
        of_object[find(each.keys[0])].append(each)
    keys_of: defaultdict[str, list[str]] = defaultdict(list)
    for key in root:
        keys_of[find(key)].append(key)
    return [(tuple(sorted(keys_of[name])), each) for name, each in of_object.items()]


class _Event:
    """A call, or a return (without `operation`), in a doubly linked list of both by time."""

    __slots__ = ("after", "before", "number", "operation", "returning")

    def __init__(self, number: int, operation: Recorded | None) -> None:
        self.number = number
        self.operation = operation
        self.returning: _Event | None = None
        self.before: _Event | None = None
        self.after: _Event | None = None

    def remove(self) -> None:
        assert self.before is not None
        self.before.after = self.after
        if self.after is not None:
            self.after.before = self.before

    def restore(self) -> None:
        assert self.before is not None
        self.before.after = self
        if self.after is not None:
            self.after.before = self


class _Search:
    """The search for one object."""

    def __init__(self, operations: Sequence[Recorded], steps_max: int) -> None:
        self._operations = sorted(operations, key=lambda each: each.called)
        self._steps_max = steps_max
        self.steps = 0

    def run(self) -> bool | None:
        """Return whether there is an order; None if it was not decided within `steps_max`."""
        head = _linked(self._operations)
        pending = sum(each.returned is not None for each in self._operations)
        taken: list[tuple[_Event, ObjectState]] = []
        state: ObjectState = {}
        mask = 0
        seen: set[tuple[int, frozenset[Any]]] = set()
        event = head.after
        while pending:
            self.steps += 1
            if self.steps > self._steps_max:
                return None
            if event is not None and event.operation is not None:
                following = event.operation.apply(state)
                bit = mask | 1 << event.number
                if following is not None:
                    known = (bit, frozenset(following.items()))
                    if known not in seen:
                        seen.add(known)
                        taken.append((event, state))
                        state, mask = following, bit
                        pending -= _take(event)
                        event = head.after
                        continue
                event = event.after
            else:
                if not taken:
                    return False
                event, state = taken.pop()
                mask ^= 1 << event.number
                pending += _untake(event)
                event = event.after
        return True

    def shortest_violation(self) -> Sequence[Recorded]:
        """Return the operations up to the first return after which no order is left."""
        returns = sorted(each.returned for each in self._operations if each.returned is not None)
        low, high = 0, len(returns) - 1
        while low < high:
            middle = (low + high) // 2
            if _Search(self._until(returns[middle]), self._steps_max).run() is False:
                high = middle
            else:
                low = middle + 1
        return self._until(returns[low])

    def _until(self, moment: float) -> list[Recorded]:
        """Return what was called by then; what had not returned yet has an unknown outcome."""
        return [
            each
            if each.returned is None or each.returned <= moment
            else msgspec.structs.replace(each, returned=None)
            for each in self._operations
            if each.called <= moment
        ]


def _linked(operations: Sequence[Recorded]) -> _Event:
    """Return the head of the list of events. A call at the time of a return comes before it."""
    events: list[tuple[float, int, _Event]] = []
    for number, operation in enumerate(operations):
        call = _Event(number, operation)
        events.append((operation.called, 0, call))
        if operation.returned is not None:
            call.returning = _Event(number, None)
            events.append((operation.returned, 1, call.returning))
    head = last = _Event(-1, None)
    for _, _, event in sorted(events, key=lambda each: each[:2]):
        last.after, event.before = event, last
        last = event
    return head


def _take(event: _Event) -> int:
    """Remove an operation from the list; return 1 if it has a return."""
    event.remove()
    if event.returning is None:
        return 0
    event.returning.remove()
    return 1


def _untake(event: _Event) -> int:
    if event.returning is not None:
        event.returning.restore()
    event.restore()
    return 0 if event.returning is None else 1
