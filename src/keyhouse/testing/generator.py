"""Random scripts from a seed: few keys and spaces and short TTLs, so that operations collide."""

import random
from typing import Any, Final

from keyhouse.testing.script import ScriptOperation

SPACES: Final = ("a", "a/b", "b")
PLAIN: Final = tuple(f"k{number:02d}" for number in range(16))
COUNTERS: Final = tuple(f"n{number}" for number in range(6))
STRANGE: Final = (
    "k",
    "k%",
    "k_",
    "k0",
    "K00",
    "é",
    "e\u0301",
    "\ud7ff",
    "\ue000",
    "\uffff",
    "\U00010000",
    "a b",
    "a\nb",
)
KEYS: Final = PLAIN + COUNTERS + STRANGE
VALUES: Final = (
    '"x"',
    "null",
    "7",
    "-1",
    "1.0",
    '{"b":1,"a":[2]}',
    '"\\u0000é"',
    "9223372036854775807",
    '""',
)

WEIGHTS: Final = {
    "commit": 50,
    "repeat": 4,
    "read": 10,
    "scan": 14,
    "follow": 4,
    "spaces": 1,
    "sweep": 4,
    "forget": 0.5,
    "advance": 12,
    "reopen": 1,
}


def generate(seed: int, operations: int) -> str:
    """Return the script of a seed, which its first line states."""
    generator = _Generator(random.Random(seed))
    lines = [str(generator.operation()) for _ in range(operations)]
    return "\n".join([f"# seed {seed}, {operations} operations", *lines, ""])


class _Generator:
    def __init__(self, dice: random.Random) -> None:
        self._dice = dice
        self._identified: list[ScriptOperation] = []

    def operation(self) -> ScriptOperation:
        (name,) = self._dice.choices(list(WEIGHTS), list(WEIGHTS.values()))
        match name:
            case "commit":
                return self._commit()
            case "repeat":
                return self._dice.choice(self._identified) if self._identified else self._commit()
            case "read":
                return ScriptOperation(name, {"space": self._space(), "keys": self._keys(4)})
            case "scan":
                return self._scan()
            case "follow":
                return ScriptOperation(name, {"space": self._space()})
            case "sweep":
                return ScriptOperation(name, {"limit": 1_000})
            case "forget":
                return ScriptOperation(name, {"space": self._space()})
            case "advance":
                return ScriptOperation(
                    name, {"milliseconds": self._dice.choice((1, 50, 300, 2_000, 50_000_000))}
                )
        return ScriptOperation(name, {})

    def _commit(self) -> ScriptOperation:
        keys = self._keys(6) if self._dice.random() < 0.95 else []
        roles = [self._dice.choice(("puts", "puts", "puts", "deletes", "adds")) for _ in keys]
        arguments: dict[str, Any] = {
            "space": self._space(),
            "checks": {key: self._word() for key in self._keys(2)}
            if self._dice.random() < 0.5
            else {},
            "puts": {
                key: self._value(key)
                for key, role in zip(keys, roles, strict=True)
                if role == "puts"
            },
            "deletes": [key for key, role in zip(keys, roles, strict=True) if role == "deletes"],
            "adds": {self._dice.choice(COUNTERS): self._dice.choice((1, 5, -3, 0))}
            if "adds" in roles
            else {},
            "ttl": self._dice.choice((None, None, None, 0, 60, 400, 5_000)),
        }
        for key in arguments["adds"]:
            arguments["puts"].pop(key, None)
            arguments["deletes"] = [deleted for deleted in arguments["deletes"] if deleted != key]
        if self._dice.random() < 0.15:
            arguments["id"] = f"id{len(self._identified)}"
            self._identified.append(ScriptOperation("commit", arguments))
        return ScriptOperation("commit", arguments)

    def _scan(self) -> ScriptOperation:
        start, stop = sorted((self._dice.choice(("", *KEYS)), self._dice.choice(KEYS)))
        arguments = {
            "space": self._space(),
            "start": start,
            "stop": self._dice.choice((stop, stop, None)),
            "limit": self._dice.choice((1, 2, 5, 100)),
            "reverse": self._dice.random() < 0.5,
            "keys_only": self._dice.random() < 0.3,
        }
        return ScriptOperation("scan", arguments)

    def _space(self) -> str:
        return self._dice.choice(SPACES)

    def _keys(self, most: int) -> list[str]:
        return self._dice.sample(KEYS, self._dice.randint(1, most))

    def _word(self) -> str:
        return self._dice.choice(("now", "now", "now", "now", "absent", "old", "never"))

    def _value(self, key: str) -> str:
        is_counter = key in COUNTERS and self._dice.random() < 0.8
        return str(self._dice.randint(-9, 9)) if is_counter else self._dice.choice(VALUES)
