"""A program that commits as fast as it can and prints each acknowledgement, until it is killed.

    python -m tests.engines.support.crash_writer URL ROUND

Writer `w` of round `r` puts, in its `n`-th commit, the rows `r/w/n/a`, `r/w/n/b` and `r/w/n/c`,
deletes `c` of the commit before, and adds 1 to `count`. For each acknowledgement it prints
`w n revision`. `check` asserts the state that a killed program leaves.
"""

import asyncio
import os
import sys

from keyhouse.engine import Add, Batch, Engine, Put, Span
from keyhouse.engines.registry import open_engine

WRITERS = 8
VALUE_BYTES = 400


async def write(engine: Engine, round: str, writer: int) -> None:
    number = 0
    while True:
        at = f"{round}/{writer}/{number:06d}"
        value = b'"%s"' % (at.encode() * (VALUE_BYTES // len(at)))
        batch = Batch(
            puts=tuple(Put(f"{at}/{part}", value) for part in "abc"),
            deletes=(f"{round}/{writer}/{number - 1:06d}/c",) if number else (),
            adds=(Add("count", 1),),
            id=at,
        )
        revision = await engine.commit("s", batch)
        os.write(1, f"{writer} {number} {revision}\n".encode())
        number += 1


async def check(engine: Engine, round: str, acknowledged: dict[int, list[int]]) -> int:
    """Assert that no acknowledged commit is lost or torn; return the number of stored commits."""
    there: dict[int, list[int]] = {}
    rows: dict[str, int] = {}
    span = Span.prefix(f"{round}/")
    more = True
    while more:
        page = await engine.scan("s", span, limit=1_000)
        for row in page.rows:
            rows[row.key] = row.revision
            at, part = row.key.rsplit("/", 1)
            assert row.value == b'"%s"' % (at.encode() * (VALUE_BYTES // len(at))), (
                f"{row.key} is torn"
            )
            if part == "a":
                there.setdefault(int(at.split("/")[1]), []).append(row.revision)
        more = page.more
        if more:
            span = span.after(page.rows[-1].key)
    for writer, revisions in acknowledged.items():
        found = there.get(writer, [])
        assert found[: len(revisions)] == revisions, f"writer {writer} lost an acknowledged commit"
        assert len(found) <= len(revisions) + 1, f"writer {writer} has commits that it never made"
    for writer, found in there.items():
        for number, revision in enumerate(found):
            at = f"{round}/{writer}/{number:06d}"
            parts = [rows.get(f"{at}/{part}") for part in "abc"]
            last = number == len(found) - 1
            assert parts == [revision, revision, revision if last else None], (
                f"the commit {at} is torn"
            )
    return sum(map(len, there.values()))


async def _main(url: str, round: str) -> None:
    engine = await open_engine(url)
    await asyncio.gather(*(write(engine, round, writer) for writer in range(WRITERS)))


if __name__ == "__main__":
    asyncio.run(_main(*sys.argv[1:]))
