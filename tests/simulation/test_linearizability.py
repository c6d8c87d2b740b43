"""The checker: it accepts what some order explains, and finds every planted violation."""

from collections.abc import Callable, Sequence
from itertools import permutations
from random import Random
from typing import Any

import pytest

from keyhouse.testing.linearizability import Recorded, check
from tests.sizes import size
from tests.support.seeds import new_seed


def put(key: str, value: int, called: float, returned: float | None) -> Recorded:
    return Recorded(
        (key,), called, returned, lambda state: {**state, key: value}, f"put {key} {value}"
    )


def get(key: str, value: int | None, called: float, returned: float) -> Recorded:
    return Recorded(
        (key,),
        called,
        returned,
        lambda state: state if state.get(key) == value else None,
        f"get {key}: {value}",
    )


def swap(key: str, old: int | None, new: int, called: float, returned: float | None) -> Recorded:
    return Recorded(
        (key,),
        called,
        returned,
        lambda state: {**state, key: new} if state.get(key) == old else None,
        f"put {key} {new} over {old}",
    )


def add(key: str, after: int, called: float, returned: float | None) -> Recorded:
    return Recorded(
        (key,),
        called,
        returned,
        lambda state: {**state, key: after} if state.get(key, 0) == after - 1 else None,
        f"add 1 to {key}: {after}",
    )


def both(value: int, called: float, returned: float | None) -> Recorded:
    return Recorded(
        ("x", "y"), called, returned, lambda state: {"x": value, "y": value}, f"put both {value}"
    )


def read_both(x: int | None, y: int | None, called: float, returned: float) -> Recorded:
    return Recorded(
        ("x", "y"),
        called,
        returned,
        lambda state: state if (state.get("x"), state.get("y")) == (x, y) else None,
        f"get both: {x}, {y}",
    )


def claim(name: str, owner: int, called: float, returned: float | None) -> Recorded:
    return Recorded(
        (f"name:{name}",),
        called,
        returned,
        lambda state: None if state else {f"name:{name}": owner},
        f"{owner} claims {name}",
    )


LINEARIZABLE: dict[str, list[Recorded]] = {
    "nothing": [],
    "a read beside a write may see it or not": [put("x", 1, 1, 4), get("x", None, 2, 3)],
    "a write without a reply was applied": [put("x", 1, 1, None), get("x", 1, 5, 6)],
    "a write without a reply was not applied": [put("x", 1, 1, None), get("x", None, 5, 6)],
    "a write without a reply is applied late": [
        put("x", 1, 1, None),
        put("x", 2, 2, 3),
        get("x", 2, 4, 5),
        get("x", 1, 6, 7),
    ],
    "concurrent writes in either order": [
        put("x", 1, 1, 5),
        put("x", 2, 2, 6),
        get("x", 2, 7, 8),
    ],
    "equal times are concurrent": [put("x", 1, 1, 2), get("x", None, 2, 3)],
    "objects are independent": [put("x", 1, 1, 2), get("y", None, 3, 4), get("x", 1, 3, 4)],
    "a batch of two keys": [both(1, 1, 2), read_both(1, 1, 3, 4)],
}

VIOLATIONS: dict[str, list[Recorded]] = {
    "a stale read": [put("x", 1, 1, 2), get("x", None, 3, 4)],
    "a read that goes back": [
        put("x", 1, 1, 2),
        put("x", 2, 3, 9),
        get("x", 2, 4, 5),
        get("x", 1, 6, 7),
    ],
    "a value that nobody wrote": [put("x", 1, 1, 2), get("x", 7, 3, 4)],
    "a lost update": [put("x", 0, 1, 2), swap("x", 0, 1, 3, 5), swap("x", 0, 2, 4, 6)],
    "a counter that two callers get alike": [add("n", 1, 1, 3), add("n", 1, 2, 4)],
    "a counter that skips": [add("n", 1, 1, 2), add("n", 3, 3, 4)],
    "a lost acknowledged write": [put("x", 1, 1, 2), put("x", 2, 3, 4), get("x", 1, 5, 6)],
    "half of a batch": [both(1, 1, 2), both(2, 3, 9), read_both(2, 1, 4, 5)],
    "a name with two owners": [claim("ada", 1, 1, 4), claim("ada", 2, 2, 5)],
    "a write applied twice": [
        put("x", 1, 1, 2),
        put("x", 2, 3, 4),
        get("x", 1, 5, 6),
        get("x", 2, 7, 8),
    ],
}


@pytest.mark.parametrize("history", LINEARIZABLE.values(), ids=LINEARIZABLE)
def test_a_history_with_an_order_is_accepted(history: Sequence[Recorded]) -> None:
    verdict = check(history)
    assert verdict.is_linearizable, f"{verdict}"


@pytest.mark.parametrize("history", VIOLATIONS.values(), ids=VIOLATIONS)
def test_a_violation_is_found_and_reported(history: Sequence[Recorded]) -> None:
    verdict = check(history)
    assert not verdict.is_linearizable
    assert f"{verdict}".startswith("no order explains these results:")


def test_a_violation_ends_at_the_first_result_that_nothing_explains() -> None:
    history = [
        put("x", 1, 1, 2),
        get("x", 7, 3, 4),
        *(get("x", 1, at, at + 1) for at in range(5, 50)),
    ]
    assert [each.text for each in check(history).violation] == ["put x 1", "get x: 7"]


def test_a_search_that_is_given_up_is_undecided_and_not_a_success() -> None:
    history = [put("x", number, 1, None) for number in range(12)] + [get("x", 99, 2, 3)]
    verdict = check(history, steps_max=100)
    assert verdict.undecided == [("x",)]
    assert not verdict.is_linearizable


def explained(history: Sequence[Recorded]) -> bool:
    """Try all orders of all choices of the unknown operations."""

    def fits(order: Sequence[Recorded]) -> bool:
        state: Any = {}
        for at, each in enumerate(order):
            if any(
                later.returned is not None and later.returned < each.called for later in order[at:]
            ):
                return False
            state = each.apply(state)
            if state is None:
                return False
        return True

    known = [each for each in history if each.returned is not None]
    unknown = [each for each in history if each.returned is None]
    return any(
        fits(order)
        for chosen in range(2 ** len(unknown))
        for order in permutations(
            known + [each for at, each in enumerate(unknown) if chosen >> at & 1]
        )
    )


@pytest.mark.soak
def test_the_search_agrees_with_trying_all_orders() -> None:
    random = Random(new_seed())
    makers: tuple[Callable[[float, float | None], Recorded], ...] = (
        lambda called, returned: put("x", random.randrange(2), called, returned),
        lambda called, returned: get(
            "x", random.choice((None, 0, 1)), called, called + 1 if returned is None else returned
        ),
        lambda called, returned: swap("x", random.randrange(2), 1, called, returned),
    )
    results = set()
    for _ in range(size(150, 1_000, 20_000)):
        history = []
        for _ in range(random.randint(1, 6)):
            called = random.randrange(12)
            returned = None if random.random() < 0.15 else called + random.randint(1, 5)
            history.append(random.choice(makers)(called, returned))
        results.add(explained(history))
        assert check(history).is_linearizable is explained(history), history
    assert results == {True, False}
