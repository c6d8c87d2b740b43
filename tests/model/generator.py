"""Random operations from a seed, as replayable text, with few ids and short TTLs so that they
collide.

    put {"home": "main", "record": "item", "value": {"id": "a", …}, "ttl": null, "expect": "now"}
    transact {"home": "side", "catch": true, "steps": [["delete", {…}], ["append", {…}]]}
    page {"home": "main", "by": "tag", "fields": ["fun"], "prefix": null, "limit": 2, "slot": 1}
    clock {"by": -4000}

Operations do not depend on results: `expect` is a word, and a cursor is named by its slot.
"""

import random
from collections.abc import Callable, Sequence
from typing import Any, Final, TypeVar

from keyhouse.testing.script import ScriptOperation

T = TypeVar("T")

HOMES: Final = ("main", "side")
IDS: Final = ("a", "b", "ab", "a:b", "a%", "A", "é", "9", "10")
FEW: Final = ("a", "b", "a:b", "é")
SHELVES: Final = (None, None, "s", "s", "s:t", "t%", "S")
PLACES: Final = (None, 0.0, 0.5, 1.5, 2.0, 10.25)
TAGS: Final = ("fun", "Fun ", "fun:ish", "old", "%")
NAMES: Final = (None, None, None, "ann", "Ann", "bob", "c:d", "É", "e\u0301", "x  y")
PROJECTS: Final = (None, "p", "p:q", "P")
OWNERS: Final = ("o", "o:p", "%")
CODES: Final = (None, None, "1", "2", "3:")
USERS: Final = ("u", "u:v")
COUNTED: Final = ("hits", "c:d")
MORTAL: Final = ("fixed", "sliding", "write", "field")
ENTITIES: Final = ("item", "item", "item", "task", "task", *MORTAL)
LOGS: Final = ("now", "later", "numbered")
BOUND: Final = 2**63 - 1

KEYED: Final = ("item", "task", *MORTAL, "last", *LOGS, "now-state", "later-state")
INDEXES: Final = (
    "shelf",
    "tag",
    "rank",
    "name",
    "first",
    "project",
    *(f"{name}-{by}" for name in MORTAL for by in ("owner", "tag", "code")),
)
LONG: Final = ("item", "task", "shelf", "tag", "rank", "project")
"""Scans that usually have several pages."""
UNIQUES: Final = ("name", "first", *(f"{name}-code" for name in MORTAL))

WEIGHTS: Final = {
    "put": 26,
    "delete": 7,
    "transact": 14,
    "get": 7,
    "lookup": 4,
    "members": 2,
    "total": 2,
    "page": 7,
    "more": 6,
    "keys": 2,
    "add": 3,
    "set": 1,
    "counted": 1,
    "append": 7,
    "prune": 2,
    "sweep": 2,
    "clock": 6,
    "reopen": 0.5,
    "check": 0.5,
    "verify": 0.1,
}
STEPS: Final = {
    "put": 10,
    "delete": 4,
    "add": 2,
    "set": 0.5,
    "counted": 1,
    "append": 2,
    "get": 2,
    "lookup": 2,
}


def generate(seed: int, operations: int) -> list[ScriptOperation]:
    """Return the operations of a seed."""
    generator = Generator(random.Random(seed))
    return [generator.operation() for _ in range(operations)]


class Generator:
    """`dice` may come from Hypothesis, which then shrinks failures."""

    def __init__(self, dice: random.Random) -> None:
        self._dice = dice

    def operation(self) -> ScriptOperation:
        return self.make(self._weighted(WEIGHTS))

    def make(self, name: str) -> ScriptOperation:
        """Return an operation of this name."""
        make: Callable[[], dict[str, Any]] = getattr(self, f"_{name}", dict)
        home = (
            {"home": self._pick(HOMES)}
            if name in STEPS or name in ("members", "total", "page", "keys")
            else {}
        )
        if name in ("transact", "prune"):
            home = {"home": self._pick(HOMES)}
        return ScriptOperation(name, home | make())

    def _put(self) -> dict[str, Any]:
        record = self._pick(ENTITIES)
        value: dict[str, Any] = {"id": self._pick(IDS if record == "item" else FEW)}
        match record:
            case "item":
                value |= {"name": self._pick((*NAMES, " ") if self._rarely() else NAMES)}
                value |= {
                    "shelf": self._pick(SHELVES),
                    "place": 1.234 if self._rarely() else self._pick(PLACES),
                }
                value |= {"tags": self._some((*TAGS, " ") if self._rarely() else TAGS)}
                value |= {
                    "rank": 1_000 if self._rarely() else self._dice.randint(0, 3),
                    "listed": self._half(),
                }
            case "task":
                state = "lost" if self._rarely() else self._pick(("open", "done"))
                value |= {"state": state, "project": self._pick(PROJECTS)}
            case _:
                value |= {
                    "owner": self._pick(OWNERS),
                    "code": self._pick((*CODES, "") if self._rarely() else CODES),
                }
                value |= {
                    "tags": self._some((*OWNERS, "") if self._rarely() else OWNERS),
                    "until": None,
                }
        if record == "field" and not self._rarely():
            value["until"] = self._pick((1, 2_000, 40_000, 40_000, 90_000, 0, "soon"))
        timed = record in ("sliding", "write", "fixed") or self._rarely()
        ttl = self._pick((None, None, 1, 5, 40)) if timed else None
        return {
            "record": record,
            "value": value,
            "ttl": 0 if self._rarely() else ttl,
            "expect": self._expect(),
        }

    def _delete(self) -> dict[str, Any]:
        record = self._pick(ENTITIES)
        return {"record": record, "keys": self._keys_of(record), "expect": self._expect()}

    def _get(self) -> dict[str, Any]:
        record = self._pick((*ENTITIES, "last", "now-state", "later-state"))
        return {"record": record, "keys": self._keys_of(record)}

    def _lookup(self) -> dict[str, Any]:
        by = self._pick(UNIQUES)
        values = NAMES if by == "name" else SHELVES if by == "first" else CODES
        return {"by": by, "value": self._pick([value for value in values if value is not None])}

    def _members(self) -> dict[str, Any]:
        of = self._pick(("shelf", "rank", "project", "played"))
        values: dict[str, Sequence[Any]] = {
            "shelf": SHELVES,
            "rank": range(4),
            "project": PROJECTS,
            "played": IDS,
        }
        return {"of": of, "value": self._pick([value for value in values[of] if value is not None])}

    def _total(self) -> dict[str, Any]:
        of = self._pick(("shelf", "tag", "project"))
        values: dict[str, Sequence[Any]] = {"shelf": SHELVES, "tag": TAGS, "project": PROJECTS}
        return {"of": of, "value": self._pick([value for value in values[of] if value is not None])}

    def _keys(self) -> dict[str, Any]:
        return self._scan() | {"limit": self._pick((1, 3, 1_000))}

    def _page(self) -> dict[str, Any]:
        return self._scan() | {
            "limit": self._pick((1, 1, 1, 2, 3, 100)),
            "slot": self._dice.randint(0, 1),
        }

    def _more(self) -> dict[str, Any]:
        return {"slot": self._dice.randint(0, 1), "turned": self._dice.randint(0, 5) == 5}

    def _scan(self) -> dict[str, Any]:
        by = self._pick((*KEYED, *INDEXES, *LONG, *LONG, *LONG, *LONG))
        fields = self._fields_of(by)
        fields = fields[: self._pick((0, 0, 0, 0, 0, 1, 1, 2, 3))]
        prefix = self._pick((None,) * 24 + ("", "a", "a:", "s", "fu", "Fun", "o", "u"))
        between = self._pick(
            (None,) * 24
            + (["a", "f"], [None, "s"], ["b", None], ["A", "T"], ["s", "a"], ["a", "b:"])
        )
        return {
            "by": by,
            "fields": fields,
            "prefix": prefix,
            "between": between,
            "reverse": self._half(),
        }

    def _fields_of(self, by: str) -> list[Any]:
        """Return values for the fields of a key, in order; for a log, only its stream."""
        name, _, index = by.partition("-")
        match by:
            case "shelf":
                shelf = self._pick(SHELVES) or "s"
                return [shelf, self._pick(PLACES), self._pick(IDS)]
            case "tag":
                return [self._pick(TAGS), self._pick(IDS)]
            case "rank":
                return [self._dice.randint(0, 3), self._pick(IDS)]
            case "name" | "first":
                return [self._pick(NAMES if by == "name" else SHELVES) or "s"]
            case "project":
                return [self._pick(PROJECTS) or "p", self._pick(("open", "done")), self._pick(FEW)]
            case "now" | "later" | "numbered":
                return [self._pick(USERS)]
        if name in MORTAL and index:
            return (
                [self._pick(CODES) or "1"]
                if index == "code"
                else [self._pick(OWNERS), self._pick(FEW)]
            )
        return self._keys_of(by)

    def _keys_of(self, record: str) -> list[Any]:
        match record:
            case "item":
                return [self._pick(IDS)]
            case "task":
                return [self._pick(("open", "done")), self._pick(FEW)]
            case "last":
                return [self._pick(FEW), self._pick(("now", "later"))]
            case "now-state" | "later-state":
                return [self._pick(USERS)]
        return [self._pick(FEW)]

    def _add(self) -> dict[str, Any]:
        by = self._pick((BOUND, -BOUND, BOUND + 1)) if self._rarely() else self._dice.randint(-3, 3)
        return {"name": self._pick(COUNTED), "by": by}

    def _set(self) -> dict[str, Any]:
        return {"name": self._pick(COUNTED), "value": self._pick((None, 0, 7))}

    def _counted(self) -> dict[str, Any]:
        return {"name": self._pick(COUNTED)}

    def _append(self) -> dict[str, Any]:
        log = self._pick(LOGS)
        ago = self._pick((0, 1, 5_000)) if log != "numbered" and self._rarely() else None
        return {"log": log, "user": self._pick(USERS), "item": self._pick(FEW), "ago": ago}

    def _prune(self) -> dict[str, Any]:
        arguments = {"log": self._pick(("now", "later")), "user": self._pick((*USERS, None))}
        return arguments | {
            "ago": self._pick((-1, 0, 3_000, 60_000)),
            "keep": self._pick((0, 0, 1, 3)),
        }

    def _transact(self) -> dict[str, Any]:
        steps = [self.make(self._weighted(STEPS)) for _ in range(self._dice.randint(1, 6))]
        shown = [
            [step.name, {n: v for n, v in step.arguments.items() if n != "home"}] for step in steps
        ]
        return {"catch": self._half(), "steps": shown}

    def _sweep(self) -> dict[str, Any]:
        return {"limit": self._pick((1, 3, 500))}

    def _clock(self) -> dict[str, Any]:
        return {
            "by": self._pick((1, 999, 1_000, 1_500, 4_000, 20_000, 61_000, -1, -3_000, -50_000))
        }

    def _expect(self) -> str:
        return self._pick(("", "", "", "", "now", "now", "absent", "stale"))

    def _pick(self, values: Sequence[T]) -> T:
        return values[self._dice.randint(0, len(values) - 1)]

    def _some(self, values: Sequence[T]) -> list[T]:
        return [self._pick(values) for _ in range(self._dice.randint(0, 3))]

    def _weighted(self, weights: dict[str, float]) -> str:
        return self._dice.choices(list(weights), list(weights.values()))[0]

    def _half(self) -> bool:
        return self._dice.randint(0, 1) == 1

    def _rarely(self) -> bool:
        return self._dice.randint(0, 39) == 39
