"""The order of tests over processes: none is lost; all processes but one start with long tests."""

from typing import Any, cast

import pytest

from tests.conftest import order_for_workers


class Named:
    def __init__(self, name: str) -> None:
        self.name = name

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


def chunk_starts(count: int, workers: int) -> list[int]:
    """Return the indexes where worksteal splits a list."""
    starts = [0]
    for left in range(workers, 1, -1):
        starts.append(starts[-1] + (count - starts[-1]) // left)
    return starts
