"""`keyhouse verify`: compare every derived row with its record, and repair differences."""

import asyncio
from collections import Counter
from typing import Annotated

import msgspec
import typer

from keyhouse.cli.commands.migrate import find_pending, find_unbuilt
from keyhouse.cli.options import JsonLines, SpaceNames, StoreName, SystemName, Yes, examples
from keyhouse.cli.output import Part, Report, number, one_line, show_line, show_reports
from keyhouse.cli.spaces import targets, unknown_spaces
from keyhouse.cli.systems import load_system
from keyhouse.cli.target import engine_at, store_option, store_url
from keyhouse.cli.terminal import ProgressLine, confirm, interruptible
from keyhouse.engine import Engine
from keyhouse.errors import NewerError
from keyhouse.service.system import System
from keyhouse.store import Finding
from keyhouse.store import verify as verify_store

PROBLEMS_LEFT = 5
"""Exit code when problems were found and not repaired."""

_SPACES_SHOWN = 10
_ADVICE = {
    "missing": "`--repair` writes the row",
    "wrong": "`--repair` overwrites the row",
    "dangling": "`--repair` deletes the row",
    "miscounted": "`--repair` counts again, and writes the number",
    "unfolded": "check first: `--repair` folds the events, and counts them twice if the state was"
    " reset after it had counted them",
    "foreign": "`--repair` adopts the row, and writes the rows derived from it; or delete it",
    "orphan": "`--repair` deletes the record, with all that belongs to it",
    "unfinished": "`--repair` finishes the deletion",
    "unresolved": "put the record that it refers to, or change the reference",
    "conflict": "two records claim one row: change one of them, then verify again",
    "unmigrated": "migrate the space first, with `{migrate}`, then verify again; until then no"
    " option repairs or deletes rows of it",
    "newer": "newer code wrote it: use the newer program; no option of this one deletes it",
    "sealed": "give the key ring that has its key; no option deletes it",
    "unreadable": (
        "if the declaration changed, give the new member a default, or write a Migration; if the "
        "row is damaged, write the record again (`keyhouse explain` shows it), or delete it with "
        "`--delete-unreadable`"
    ),
    "unknown": "find out which program wrote it; `--delete-unreadable` deletes it",
}


@examples(
    "keyhouse verify audiobooks --store sqlite:library.db",
    "keyhouse verify audiobooks --space main --repair --store sqlite:library.db",
)
def verify(
    system: SystemName,
    space: SpaceNames = None,
    repair: Annotated[
        bool, typer.Option("--repair", help="Repair derived rows from their records.")
    ] = False,
    delete_unreadable: Annotated[
        bool,
        typer.Option(
            "--delete-unreadable",
            help="Delete rows that can't be decoded or match no template. Asks first.",
        ),
    ] = False,
    yes: Yes = False,
    store: StoreName = None,
    json: JsonLines = False,
) -> None:
    """Find missing, wrong and dangling rows, and repair them.

    Compares every row with the records, while other programs write. With --repair, each repair is
    one commit that checks the records it is based on. With --json: one line per finding, then one
    with the totals. Exit code 5: problems were found and not repaired.
    """
    if delete_unreadable:
        confirm(
            "Delete rows that can't be decoded or match no template? This can't be undone.", yes=yes
        )
    with interruptible("Completed repairs stay. Run it again to check the rest."):
        left = asyncio.run(_verify(system, store, space, repair, delete_unreadable, json))
    if left:
        raise typer.Exit(PROBLEMS_LEFT)


async def _verify(
    system: str,
    store: str | None,
    spaces: list[str] | None,
    repair: bool,
    delete_unreadable: bool,
    json: bool,
) -> int:
    loaded, findings = load_system(system), Findings(as_json=json)
    with ProgressLine() as line:
        async with engine_at(store_url(system, store), existing=True) as engine:
            async for target in targets(loaded, engine, spaces):
                findings.enter(target.space)

                def on_progress(rows: int, space: str = target.space) -> None:
                    findings.count_rows(rows)
                    line.update(
                        f"{space}: {number(findings.rows, 'row')},"
                        f" {number(findings.count, 'finding')}"
                    )

                async for finding in verify_store(
                    target.store(engine),
                    repair=repair,
                    delete_unreadable=delete_unreadable,
                    on_progress=on_progress,
                ):
                    line.clear()
                    findings.add(finding)
            others = await unknown_spaces(loaded, engine) if not spaces else []
            unbuilt = await _new_indexes(loaded, engine, spaces) if findings.has_missing else []
    build = f"keyhouse migrate {system}{store_option(store)} --reindex"
    migrate = f"keyhouse migrate {system}{store_option(store)}"
    findings.show_totals(others, [(each, f"`{build}`") for each in unbuilt], migrate)
    return findings.left


async def _new_indexes(system: System, engine: Engine, spaces: list[str] | None) -> list[str]:
    """Return the indexes that are new in the declaration and not built, with their spaces."""
    try:
        behind = [each.space for each in (await find_pending(system, engine, spaces)).behind]
    except NewerError:  # the indexes of this code are not those of the space
        return []
    # a single missing row does not mean a new index
    unbuilt = await find_unbuilt(system, engine, spaces, skip=behind, may_guess=False)
    return [f"{each.space}: {each.index}" for each in unbuilt]


class Findings:
    """Prints each finding as it is made, and the totals at the end."""

    def __init__(self, *, as_json: bool) -> None:
        self._as_json = as_json
        self._space = ""
        self._spaces = 0
        self._rows_before = 0
        self._kinds: Counter[str] = Counter()
        self._kinds_left: Counter[str] = Counter()
        self.rows = 0
        self.repaired = 0

    @property
    def count(self) -> int:
        return self._kinds.total()

    @property
    def left(self) -> int:
        return self.count - self.repaired

    @property
    def has_missing(self) -> bool:
        return bool(self._kinds["missing"] or self._kinds["miscounted"])

    def enter(self, space: str) -> None:
        self._space, self._rows_before = space, self.rows
        self._spaces += 1

    def count_rows(self, rows: int) -> None:
        """Set the number of rows read in the current space."""
        self.rows = self._rows_before + rows

    def add(self, finding: Finding) -> None:
        self._kinds[finding.kind] += 1
        self._kinds_left[finding.kind] += not finding.repaired
        self.repaired += finding.repaired
        if self._as_json:
            show_line({"space": self._space, **msgspec.structs.asdict(finding)})
        else:
            state = "repaired" if finding.repaired else "found"
            where = f"{finding.kind} in {self._space}: {finding.key}"
            print(one_line(f"{state}: {where} ({finding.detail})"))

    def show_totals(self, unknown: list[str], unbuilt: list[tuple[str, str]], migrate: str) -> None:
        """Print the totals.

        `unknown`: spaces with rows that do not belong to the system. `unbuilt`: new indexes, with
        the command that builds them. `migrate` is the command that migrates.
        """
        if self._as_json:
            totals = {
                "rows": self.rows,
                "spaces": self._spaces,
                "findings": self.count,
                "left": self.left,
            }
            show_line({**totals, "other_spaces": unknown})
            return
        rows = f"{number(self.rows, 'row')} of {number(self._spaces, 'space')} read"
        text = f"{rows}: no problems."
        if self.count:
            text = (
                f"{rows}: {number(self.count, 'finding')}, {self.repaired:,} repaired,"
                f" {self.left:,} left."
            )
        advice = [
            (kind, f"{count:,}", _ADVICE[kind].replace("{migrate}", migrate))
            for kind, count in self._kinds_left.items()
            if count
        ]
        others = [(f"`{space}`",) for space in unknown]
        if self.count:
            print()
        parts = [
            Part("What to do", advice),
            Part("New indexes: repaired rows do not complete them, so build them", unbuilt),
            Part("Spaces of other systems, not checked", others, _SPACES_SHOWN),
        ]
        show_reports([Report("Verified", text, parts)])
