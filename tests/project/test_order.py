"""The order of tests: none is lost; all processes but one start with long tests; a seed shuffles
modules and their tests."""

from typing import Any, cast

import pytest

from conftest import order_for_workers, shuffled


class Named:
    def __init__(self, name: str) -> None:
        self.name = self.nodeid = name

    def get_closest_marker(self, mark: str) -> bool:
        return mark in self.name


@pytest.mark.parametrize("workers", [1, 2, 3, 4])
@pytest.mark.parametrize(("long", "short"), [(7, 100), (5, 5), (3, 0), (0, 9), (1, 1)])
def test_all_processes_but_one_start_with_their_share_of_long_tests(
    long: int, short: int, workers: int
) -> None:
    items = [Named(f"short {number}") for number in range(short)] + [
        Named(f"long {number}") for number in range(long)
    ]
    order = cast(list[Any], order_for_workers(cast(list[Any], items), workers))
    assert sorted(item.name for item in order) == sorted(item.name for item in items)
    if workers > 1 and short >= long:
        *others, last = chunk_starts(len(items), workers)
        assert all(order[start].name.startswith("long") for start in others[:long])
        assert order[last].name.startswith("short")


def test_a_seed_is_one_order_of_modules_and_of_their_tests() -> None:
    names = [f"tests/test_{module}.py::test_{test}" for module in range(9) for test in range(9)]

    def order(seed: int) -> list[str]:
        return [item.nodeid for item in shuffled([*map(cast(Any, Named), names)], seed)]

    first = order(1)
    assert first == order(1) != order(2)
    assert sorted(first) == names != first
    modules = [name.partition("::")[0] for name in first]
    assert len({*modules}) == 1 + sum(map(str.__ne__, modules, modules[1:])), "a module is whole"
    assert [*dict.fromkeys(modules)] != sorted({*modules}), "modules are shuffled"


def chunk_starts(count: int, workers: int) -> list[int]:
    """Return the indexes where worksteal splits a list."""
    starts = [0]
    for left in range(workers, 1, -1):
        starts.append(starts[-1] + (count - starts[-1]) // left)
    return starts
