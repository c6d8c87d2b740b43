"""Scripts of operations that must produce the same history on every engine.

A line is an operation and its arguments as JSON, so that a script can be read, shortened by hand,
and kept as a regression test. Nothing in it depends on an engine: a check names a revision by a
word, an expiry is a TTL, and revisions in a history are ranks: `#3` is the third commit of its
space.

    commit {"space": "a", "checks": {"k1": "now"}, "puts": {"k1": "7"}, "deletes": ["k2"], "ttl": 9}
    commit {"space": "a", "adds": {"n": 1}}
    read {"space": "a", "keys": ["k1", "k2"]}
    scan {"space": "a", "start": "k", "stop": null, "limit": 5, "reverse": true, "keys_only": false}
    follow {"space": "a"}
    spaces {}
    sweep {"limit": 1000}
    forget {"space": "a"}
    advance {"milliseconds": 300}
    reopen {}
"""

import json
from bisect import bisect_right
from collections import defaultdict
from typing import Any, Final, NamedTuple

from keyhouse.clock import ManualClock
from keyhouse.engine import Add, Batch, Check, Engine, Put, Row, Span
from keyhouse.errors import CounterError
from keyhouse.limits import PAGE_ROWS_MAX
from keyhouse.testing.conformance.harness import ALL, Opener, leave, step

MARK: Final = "~mark"
"""The row that `follow` writes, to find the end of a watch's pending changes."""

KEPT_LAST: Final = "k05"
"""The row that `forget` erases last, if it is there."""


class ScriptOperation(NamedTuple):
    name: str
    arguments: dict[str, Any]

    def __str__(self) -> str:
        return f"{self.name} {json.dumps(self.arguments)}"


def parse(script: str) -> list[ScriptOperation]:
    """Return the operations of a script, ignoring empty lines and lines that start with `#`."""
    operations = []
    for line in script.splitlines():
        name, _, arguments = line.partition(" ")
        if name and not name.startswith("#"):
            operations.append(ScriptOperation(name, json.loads(arguments)))
    return operations


async def play(script: str, opener: Opener) -> list[str]:
    """Run a script and return its history: one line for each operation, with its result."""
    clock = ManualClock()
    player = _Player(opener, clock, await opener(clock))
    try:
        return [f"{operation} -> {await player.play(operation)}" for operation in parse(script)]
    finally:
        await player.engine.close()


class _Followed:
    """A copy of a space, made from one page and updated by changes."""

    def __init__(self, rows: list[Row], since: int) -> None:
        self.rows = {row.key: (row.value, row.expires) for row in rows}
        self.since = since


class _Player:
    def __init__(self, opener: Opener, clock: ManualClock, engine: Engine) -> None:
        self.engine = engine
        self._opener = opener
        self._clock = clock
        self._revisions: defaultdict[str, list[int]] = defaultdict(list)
        self._followed: dict[str, _Followed] = {}

    async def play(self, operation: ScriptOperation) -> str:
        match operation.name:
            case "commit":
                return await self._commit(**operation.arguments)
            case "read":
                return await self._read(**operation.arguments)
            case "scan":
                return await self._scan(**operation.arguments)
            case "follow":
                return await self._follow(**operation.arguments)
            case "spaces":
                return json.dumps([space async for space in self.engine.spaces()])
            case "sweep":
                return str(await self.engine.sweep(**operation.arguments))
            case "forget":
                return await self._forget(**operation.arguments)
            case "advance":
                return str(self._clock.advance(**operation.arguments))
            case "reopen":
                return await self._reopen()
        raise ValueError(f"no such operation in a script: {operation}")

    async def _commit(
        self,
        space: str,
        checks: dict[str, str] | None = None,
        puts: dict[str, str] | None = None,
        deletes: tuple[str, ...] = (),
        adds: dict[str, int] | None = None,
        ttl: int | None = None,
        id: str | None = None,
    ) -> str:
        expires = None if ttl is None else self._clock.now() + ttl
        batch = Batch(
            checks=tuple(
                [
                    Check(key, await self._named(space, key, word))
                    for key, word in (checks or {}).items()
                ]
            ),
            puts=tuple(Put(key, value.encode(), expires) for key, value in (puts or {}).items()),
            deletes=tuple(deletes),
            adds=tuple(Add(key, by) for key, by in (adds or {}).items()),
            id=id,
        )
        try:
            revision = await self.engine.commit(space, batch)
        except CounterError:
            return "refused"
        if revision is None:
            return "lost"
        if not (batch.puts or batch.deletes or batch.adds):
            return "holds"
        return self._rank(space, revision, new=True)

    async def _named(self, space: str, key: str, word: str) -> int | None:
        """The revision that a check's word means: `absent`, `now` as the row is, `old` as one was,
        `never`.
        """
        match word:
            case "absent":
                return None
            case "now":
                (row,) = await self.engine.read(space, [key])
                return None if row is None else row.revision
            case "old":
                return self._revisions[space][0] if self._revisions[space] else 1
            case "never":
                return self._revisions[space][-1] + 1_000_000 if self._revisions[space] else 1
        raise ValueError(f"no such word in a check: {word}")

    async def _read(self, space: str, keys: list[str]) -> str:
        rows = await self.engine.read(space, keys)
        return json.dumps([None if row is None else self._ranked(space, row) for row in rows])

    async def _scan(self, space: str, start: str, stop: str | None, **how: Any) -> str:
        page = await self.engine.scan(space, Span(start, stop), **how)
        at = bisect_right(self._revisions[space], page.revision)
        rows = json.dumps([self._ranked(space, row) for row in page.rows])
        return f"{rows} more={page.more} at=#{at}"

    async def _follow(self, space: str) -> str:
        """Compare a copy updated by a watch with the space; the first call starts the copy."""
        page = await self.engine.scan(space, ALL, limit=PAGE_ROWS_MAX)
        followed = self._followed.setdefault(space, _Followed(page.rows, page.revision))
        mark = await self.engine.commit(space, Batch(puts=(Put(MARK, b"0"),)))
        assert mark is not None
        self._rank(space, mark, new=True)
        watch = self.engine.watch(space, ALL, since=followed.since)
        while (change := await step(watch)).revision != mark:
            if change.value is None:
                followed.rows.pop(change.key, None)
            else:
                followed.rows[change.key] = (change.value, change.expires)
        await leave(watch)
        followed.since = mark
        now = self._clock.now()
        copy = {key: row[0] for key, row in followed.rows.items() if row[1] is None or row[1] > now}
        copy.pop(MARK, None)
        stored = {row.key: row.value for row in page.rows if row.key != MARK}
        text = json.dumps({key: copy[key].decode() for key in sorted(copy)})
        return f"{'agrees' if copy == stored else 'DIFFERS'} {text}"

    async def _forget(self, space: str) -> str:
        """Erase a space. Its revisions may start again, and no watch can resume."""
        await self.engine.forget(space, last=KEPT_LAST)
        self._revisions.pop(space, None)
        self._followed.pop(space, None)
        return "forgotten"

    async def _reopen(self) -> str:
        """Reopen a durable engine; a volatile one stays open."""
        if self.engine.capabilities.durable:
            await self.engine.close()
            self.engine = await self._opener(self._clock)
        return "open"

    def _rank(self, space: str, revision: int, *, new: bool = False) -> str:
        known = self._revisions[space]
        if new and (not known or revision > known[-1]):
            known.append(revision)
        return f"#{known.index(revision) + 1}" if revision in known else "UNKNOWN"

    def _ranked(self, space: str, row: Row) -> list[object]:
        return [row.key, row.value.decode(), self._rank(space, row.revision), row.expires]
