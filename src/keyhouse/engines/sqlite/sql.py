"""Every word of SQL that the engine says about rows, made once from a `Layout`. No other module writes SQL with names.

What the text below rests on:

- `value` is TEXT, so that people and SQLite's JSON functions read it in a shell, and crosses as bytes through CAST,
  which only changes its type and keeps every byte.
- Rows are clustered by space and key, which makes reads and scans of small rows twice as fast as a table with an index.
  But SQLite reads a clustered row whole to look at its key, so a value that does not fit beside its key would be read
  by every search that comes past it, ten pages or a hundred. Such a value lies in a table of its own, and `large` says
  where; triggers drop it with its row. The view `documents` shows every row with its value.
- A BLOB is greater than every TEXT, so the empty BLOB is the stop of a span that has none: see `stop_of`.
- Revisions have no holes: every commit adds exactly one row to `changes`, and its newest row is never pruned.
"""

from typing import NamedTuple

import msgspec


class Layout(msgspec.Struct, frozen=True):
    """What the tables and columns are called in the file."""

    rows: str = "rows"
    space: str = "space"
    key: str = "key"
    revision: str = "revision"
    expires: str = "expires"
    value: str = "value"
    large: str = "large"
    large_values: str = "large_values"
    documents: str = "documents"
    changes: str = "changes"
    applied: str = "applied"


class Statements(NamedTuple):
    """SQL by what it does; the comment says what is bound, in order."""

    tables: tuple[str, ...]
    read: str  # space, key
    state: str  # space, key
    scans: dict[tuple[bool, bool], str]  # by (reverse, keys_only): space, start, stop, now, limit
    next_space: str  # least space, now
    put: str  # space, key, revision, expires, large, value
    put_large: str  # value
    delete: str  # space, key
    applied: str  # space, id, forgotten
    remember: str  # space, id, revision, at
    forget: str  # forgotten, limit
    expired: str  # now, limit
    delete_expired: str  # now, limit
    head: str
    log: str  # revision, space, keys
    tail: str  # after, limit
    window: str  # after, up to, space
    prune: str  # kept, limit


def stop_of(stop: str | None) -> str | bytes:
    return b"" if stop is None else stop


def statements(layout: Layout) -> Statements:
    n = Layout(*map(_quote, msgspec.structs.astuple(layout)))
    return Statements(
        tables=_tables(layout, n),
        scans={(reverse, only): _scan(n, reverse, only) for reverse in (False, True) for only in (False, True)},
        **_rows(n),
        **_applied(n),
        **_changes(n),
    )


def _quote(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _tables(layout: Layout, n: Layout) -> tuple[str, ...]:
    return (
        f"""CREATE TABLE {n.rows} ({n.space} TEXT NOT NULL, {n.key} TEXT NOT NULL, {n.revision} INTEGER NOT NULL,
            {n.expires} INTEGER, {n.large} INTEGER, {n.value} TEXT, PRIMARY KEY ({n.space}, {n.key}))
            STRICT, WITHOUT ROWID""",
        f"""CREATE INDEX {_quote(layout.rows + "_expires")} ON {n.rows} ({n.expires})
            WHERE {n.expires} IS NOT NULL""",
        f"""CREATE TABLE {n.large_values} (id INTEGER PRIMARY KEY, {n.value} TEXT NOT NULL) STRICT""",
        *(
            f"""CREATE TRIGGER {_quote(f"{layout.rows}_{event}")} AFTER {event} ON {n.rows} WHEN OLD.{n.large} IS NOT NULL
            BEGIN DELETE FROM {n.large_values} WHERE id = OLD.{n.large}; END"""
            for event in ("update", "delete")
        ),
        f"""CREATE VIEW {n.documents} AS SELECT {n.space}, {n.key}, {n.revision}, {n.expires}, {_value(n)} AS {n.value}
            FROM {n.rows}""",
        f"""CREATE TABLE {n.changes} (revision INTEGER PRIMARY KEY, space TEXT NOT NULL, keys TEXT NOT NULL) STRICT""",
        f"""CREATE TABLE {n.applied} (space TEXT NOT NULL, id TEXT NOT NULL, revision INTEGER NOT NULL,
            at INTEGER NOT NULL, PRIMARY KEY (space, id)) STRICT, WITHOUT ROWID""",
        f"""CREATE INDEX {_quote(layout.applied + "_at")} ON {n.applied} (at)""",
    )


def _value(n: Layout) -> str:
    large = f"SELECT {n.large_values}.{n.value} FROM {n.large_values} WHERE id = {n.large}"
    return f"ifnull({n.rows}.{n.value}, ({large}))"


def _rows(n: Layout) -> dict[str, str]:
    this = f"WHERE {n.space} = ? AND {n.key} = ?"
    expired = f"""SELECT {n.space}, {n.key} FROM {n.rows} WHERE {n.expires} <= ?
        ORDER BY {n.expires}, {n.space}, {n.key} LIMIT ?"""
    return {
        "read": f"SELECT CAST({_value(n)} AS BLOB), {n.revision}, {n.expires} FROM {n.rows} {this}",
        "state": f"SELECT {n.revision}, {n.expires} FROM {n.rows} {this}",
        "next_space": f"""SELECT {n.space} FROM {n.rows} WHERE {n.space} >= ?
            AND ({n.expires} IS NULL OR {n.expires} > ?) ORDER BY {n.space}, {n.key} LIMIT 1""",
        "put": f"""INSERT INTO {n.rows} ({n.space}, {n.key}, {n.revision}, {n.expires}, {n.large}, {n.value})
            VALUES (?, ?, ?, ?, ?, CAST(? AS TEXT)) ON CONFLICT DO UPDATE SET
            {n.revision} = excluded.{n.revision}, {n.expires} = excluded.{n.expires},
            {n.large} = excluded.{n.large}, {n.value} = excluded.{n.value}""",
        "put_large": f"INSERT INTO {n.large_values} ({n.value}) VALUES (CAST(? AS TEXT))",
        "delete": f"DELETE FROM {n.rows} {this}",
        "expired": f"""SELECT {n.space}, '[[],' || json_group_array({n.key}) || ']', count(*) FROM ({expired})
            GROUP BY {n.space}""",
        "delete_expired": f"DELETE FROM {n.rows} WHERE ({n.space}, {n.key}) IN ({expired})",
    }


def _scan(n: Layout, reverse: bool, keys_only: bool) -> str:
    """The newest revision, then the rows, in one read transaction: both are of one snapshot."""
    value = "x''" if keys_only else f"CAST({_value(n)} AS BLOB)"
    return f"""BEGIN; SELECT max(revision) FROM {n.changes};
        SELECT {n.key}, {value}, {n.revision}, {n.expires} FROM {n.rows}
        WHERE {n.space} = ? AND {n.key} >= ? AND {n.key} < ? AND ({n.expires} IS NULL OR {n.expires} > ?)
        ORDER BY {n.key} {"DESC" if reverse else "ASC"} LIMIT ?; COMMIT"""


def _applied(n: Layout) -> dict[str, str]:
    return {
        "applied": f"SELECT revision FROM {n.applied} WHERE space = ? AND id = ? AND at > ?",
        "remember": f"REPLACE INTO {n.applied} (space, id, revision, at) VALUES (?, ?, ?, ?)",
        "forget": f"""DELETE FROM {n.applied} WHERE (space, id) IN
            (SELECT space, id FROM {n.applied} WHERE at <= ? ORDER BY at LIMIT ?)""",
    }


def _changes(n: Layout) -> dict[str, str]:
    return {
        "head": f"SELECT max(revision) FROM {n.changes}",
        "log": f"INSERT INTO {n.changes} (revision, space, keys) VALUES (?, ?, CAST(? AS TEXT))",
        "tail": f"SELECT revision, space, CAST(keys AS BLOB) FROM {n.changes} WHERE revision > ? ORDER BY 1 LIMIT ?",
        "window": f"""BEGIN; SELECT min(revision) FROM {n.changes};
            SELECT revision, CAST(keys AS BLOB) FROM {n.changes}
            WHERE revision > ? AND revision <= ? AND space = ? ORDER BY revision; COMMIT""",
        "prune": f"""DELETE FROM {n.changes} WHERE revision <= (SELECT max(revision) FROM {n.changes}) - ?
            AND revision < (SELECT min(revision) FROM {n.changes}) + ?""",
    }
