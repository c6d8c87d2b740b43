"""What a backup holds, in the words of the question that comes before a restore; and what must not be restored into."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec

from keyhouse.cli.output import number
from keyhouse.engines.sql.url import split_layout, sqlite_file
from keyhouse.schema import MILLISECONDS
from keyhouse.store import BackupReader


class Plan(msgspec.Struct, frozen=True):
    """`made` and `moment`: as the backup says; a plain export does not."""

    rows: int
    spaces: int
    made: str | None
    moment: str | None
    sha256: str


def plan_of(kept: BackupReader) -> Plan:
    trailer = kept.trailer
    made = None if trailer.made is None else MILLISECONDS.format(trailer.made)
    return Plan(trailer.rows, len(kept.offsets), made, trailer.moment, trailer.sha256)


def question(plan: Plan, store: str) -> str:
    made = f" of {plan.made}" if plan.made else ""
    return (
        f"{store} will hold what the backup{made} holds, {number(plan.rows, 'row')} of {number(plan.spaces, 'space')}, "
        "and nothing else: its other rows are deleted. Go on?"
    )


@contextmanager
def served_by_nobody(url: str) -> Iterator[None]:
    """LockedError while a `keyhouse serve` works in the folder of this SQLite file; and none begins to, meanwhile. Other
    engines have no such folder."""
    folder = Path(sqlite_file(split_layout(url)[0])).parent if url.startswith("sqlite:") else None
    if folder is None or not (folder / "serve.lock").exists():
        yield
        return
    from keyhouse.serve.data_dir import DataDir

    taken = DataDir.take(folder)
    try:
        yield
    finally:
        taken.release()
