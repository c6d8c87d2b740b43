"""What `bench` will do and what it found, in words and bars."""

from typing import Any, Final

import msgspec

from keyhouse.bench import ROWS, Benched, Figure, Scratch, left_out
from keyhouse.cli.output import Part, Report, visible
from keyhouse.errors import UsageError

_BAR: Final = 30


def named_rows(only: str | None) -> list[str]:
    if only is None:
        return list(ROWS)
    named = [row.strip() for row in only.split(",")]
    if unknown := [row for row in named if row not in ROWS]:
        raise UsageError("There is no such row.", unknown=unknown, known=list(ROWS))
    return [row for row in ROWS if row in named]


def plan(place: Scratch, wanted: list[str], rounds: int) -> str:
    rows = ", ".join(row for row in wanted if row not in left_out(place))
    return visible(
        f"Measuring {place.place} in {place.where}, which goes at the end: {rows}; {rounds} rounds each."
    )


def about(done: Benched) -> str:
    durable = (
        "each write was on disk when it was counted"
        if done.durable
        else "NOT durable: a lost machine loses writes"
    )
    return f"{done.engine}, medians of {done.rounds} rounds in turns; {durable}."


def line_of(figure: Figure) -> str:
    """One line, as soon as it is measured."""
    ours = f"{figure.median('ours'):,.0f} {figure.unit}"
    if figure.ratio is None:
        return f"{figure.row}: {figure.work}: {ours}"
    return f"{figure.row}: {figure.work}: {ours}, {figure.ratio:.2f} of {figure.against}"


def report(done: Benched) -> Report:
    head: tuple[str, ...] = ("row", "work", "ours", "limit", "in a second", "the limit is")
    speeds = [
        (
            figure.row,
            figure.work,
            _speed(figure, "ours"),
            _speed(figure, "limit"),
            figure.unit,
            figure.against,
        )
        for figure in done.figures
    ]
    bars = [
        (figure.row, _bar(figure.ratio, figure.goal), f"{figure.ratio:.2f}", _goal(figure))
        for figure in done.figures
        if figure.ratio is not None
    ]
    left_out = [(row, why) for row, why in done.left_out.items()]
    parts = [
        Part("The table", [head, *speeds]),
        Part("Ours / limit", [*bars]),
        Part("Not measured here", [*left_out]),
    ]
    return Report(done.place, about(done), parts)


def told(done: Benched) -> Any:
    """For programs: with the ratios, which follow from the numbers."""
    plain = msgspec.to_builtins(done)
    for figure, each in zip(done.figures, plain["figures"], strict=True):
        each |= {"ratio": figure.ratio, "reached": figure.reached}
    return plain


def _speed(figure: Figure, name: str) -> str:
    found = figure.median(name)
    return "" if found is None else f"{found:,.0f}"


def _goal(figure: Figure) -> str:
    if figure.goal is None:
        return ""
    return f"goal {figure.goal:.2f}" + ("" if figure.reached else ", missed")


def _bar(ratio: float, goal: float | None) -> str:
    """With a mark where the goal is."""
    full = round(min(ratio, 1.0) * _BAR)
    bar = list("█" * full + "·" * (_BAR - full))
    if goal is not None:
        bar[min(_BAR - 1, round(goal * _BAR))] = "│"
    return "".join(bar)
