"""The plan and the results as text and tables, and as JSON."""

from typing import Any, Final

import msgspec

from keyhouse.advice.nearest import nearest
from keyhouse.bench.result import Result
from keyhouse.bench.run import CASES, BenchReport, skipped_cases
from keyhouse.bench.scratch import Scratch
from keyhouse.errors import UsageError

_BAR: Final = 30

Table = list[tuple[str, ...]]


def parse_cases(only: str | None) -> list[str]:
    """Return the cases in the order in which they run."""
    if only is None:
        return list(CASES)
    names = [name.strip() for name in only.split(",")]
    if unknown := [name for name in names if name not in CASES]:
        raise UsageError("Unknown case.", unknown=unknown, **nearest(unknown[0], CASES))
    return [case for case in CASES if case in names]


def plan(scratch: Scratch, cases: list[str], rounds: int) -> str:
    todo = ", ".join(case for case in cases if case not in skipped_cases(scratch))
    return (
        f"Measuring {scratch.engine_url} in {scratch.location}, removed at the end: "
        f"{todo}; {rounds} rounds each."
    )


def summary(result: Result) -> str:
    """Return one line, printed as soon as the case is measured."""
    ours = f"{result.median('ours'):,.0f} {result.unit}"
    if result.ratio is None:
        return f"{result.case}: {result.work}: {ours}"
    return f"{result.case}: {result.work}: {ours}, {result.ratio:.2f} of {result.baseline}"


def conditions(report: BenchReport) -> str:
    durable = (
        "each write was on disk when it was counted"
        if report.durable
        else "NOT durable: a lost machine loses writes"
    )
    return f"{report.engine}, medians of {report.rounds} rounds in turns; {durable}."


def tables(report: BenchReport) -> dict[str, Table]:
    """Return the tables of a report by their titles."""
    head = ("case", "work", "keyhouse", "baseline", "per second", "baseline is")
    speeds = [
        (
            result.case,
            result.work,
            _speed(result, "ours"),
            _speed(result, "baseline"),
            result.unit,
            result.baseline,
        )
        for result in report.results
    ]
    bars = [
        (result.case, _bar(result.ratio, result.goal), f"{result.ratio:.2f}", _goal(result))
        for result in report.results
        if result.ratio is not None
    ]
    return {
        "Results": [head, *speeds],
        "Keyhouse / baseline": [*bars],
        "Skipped": [*report.skipped.items()],
    }


def to_json(report: BenchReport) -> Any:
    """Return the report with the ratios, which follow from the numbers."""
    plain = msgspec.to_builtins(report)
    for result, each in zip(report.results, plain["results"], strict=True):
        each |= {"ratio": result.ratio, "meets_goals": result.meets_goals}
    return plain


def _speed(result: Result, name: str) -> str:
    median = result.median(name)
    return "" if median is None else f"{median:,.0f}"


def _goal(result: Result) -> str:
    if result.goal is None:
        return ""
    return f"goal {result.goal:.2f}" + ("" if result.meets_goals else ", missed")


def _bar(ratio: float, goal: float | None) -> str:
    """Draw the ratio, with a mark at the goal."""
    full = round(min(ratio, 1.0) * _BAR)
    bar = list("█" * full + "·" * (_BAR - full))
    if goal is not None:
        bar[min(_BAR - 1, round(goal * _BAR))] = "│"
    return "".join(bar)
