"""`keyhouse doctor`: what could be wrong with a store, looked at from all sides, each finding with its cure."""

import asyncio
from typing import Any

import typer

from keyhouse.cli.options import DataFolder, Json, StoreUrl, examples
from keyhouse.cli.whole import SystemOrNone

WRONG = 1
"""The exit code when something must be repaired."""

_MARKS = {"ok": "✓", "warn": "!", "bad": "✗"}


@examples(
    "keyhouse doctor",
    "keyhouse doctor audiobooks --store sqlite:library.db",
    "keyhouse doctor --store postgresql://keyhouse@host/library --json",
)
def doctor(
    system: SystemOrNone = None, store: StoreUrl = None, data: DataFolder = None, json: Json = False
) -> None:
    """Look at installation and store, and say how to mend them.

    How durable the store is, its room and clock; with SYSTEM, its rows too. It changes nothing. Without a store, it
    looks at the installation alone. Exit code 1: something must be repaired.
    """
    from keyhouse.cli.output import Part, Report, number, show_json, show_reports

    parts: dict[str, list[Any]] = asyncio.run(_doctor(system, store, data))
    facts = [fact for found in parts.values() for fact in found]
    bad = [fact for fact in facts if fact.state == "bad"]
    if json:
        show_json(
            {
                "wrong": len(bad),
                "findings": [{"part": part, "facts": found} for part, found in parts.items()],
            }
        )
    else:
        cures = [
            (f"{_MARKS[fact.state]} {fact.name}", fact.fix) for fact in facts if fact.state != "ok"
        ]
        text = f"{number(len(bad), 'thing')} to mend." if bad else "Nothing is wrong."
        shown = [
            Part(part, [(f"{_MARKS[fact.state]} {fact.name}", fact.value) for fact in found])
            for part, found in parts.items()
        ]
        show_reports([Report("Doctor", text, [*shown, Part("What to do", [*cures])])])
    if bad:
        raise typer.Exit(WRONG)


async def _doctor(system: str | None, store: str | None, data: Any) -> dict[str, list[Any]]:
    from keyhouse.cli.examining import installation, no_store, rows_of, settings, store_of
    from keyhouse.cli.place import named_url
    from keyhouse.cli.target import target

    parts = {"Installation": installation(), "Settings": settings()}
    if (url := named_url(system, store, data)) is not None:
        parts["Store"], is_reached = await store_of(url)
        if system is not None and is_reached:
            parts[f"Rows, as {system}"] = await rows_of(target(system), system, url)
    elif system is not None:
        target(system)
        parts["Store"] = [no_store()]
    return parts
