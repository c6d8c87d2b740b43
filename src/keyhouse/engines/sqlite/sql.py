"""All SQL of the engine that names tables, generated once from a `Layout`.

Design:

- `value` is TEXT, so that people and SQLite's JSON functions can read it in a shell. It is bound
  and read as bytes through CAST, which changes only the type.
- Rows are clustered by space and key, which makes reads and scans of small rows twice as fast as a
  table with an index. But SQLite reads a clustered row whole to compare its key, so a value that
  does not fit beside its key would be read, all its pages, by every search that passes it. Such a
  value is in a second table, and `large` refers to it; triggers delete it with its row. The view
  `documents` shows every row with its value. A layout that wants every value in its row gets a
  table with an index.
- A BLOB is greater than every TEXT, so the empty BLOB is the stop of an open span: see `stop_of`.
- Revisions have no gaps: every commit adds exactly one row to `changes`, and the newest is never
  pruned.
- Times are bound and read as milliseconds whatever type the layout has: SQLite's own functions
  convert them.
"""

import sys
from typing import Final, NamedTuple

from keyhouse.engines.sql.layout import Layout, in_quotes
from keyhouse.engines.sql.sqlite import create, value_of
from keyhouse.engines.sql.version import HEAD
from keyhouse.limits import EXPIRES_MAX

VALUE_INLINE_BYTES: Final = 768
"""A longer value does not fit, with its key, in a quarter of a page: a clustered row's limit."""

READ_TOGETHER_MAX: Final = 8
"""Rows that one statement reads. More are read in one transaction: by then, that is faster."""


class Statements(NamedTuple):
    """SQL by purpose; the comment lists the bindings, in order."""

    present: str
    """Two booleans: the table of rows exists, and that of its version."""
    is_default: bool
    """The tables have the default names."""
    version: str
    tables: tuple[str, ...]
    inline_bytes_max: int
    """A longer value is stored by `put_large`."""
    stamp: str | None  # now
    """The time as the columns store it, once for all puts of a transaction; None without such
    columns."""
    read: str  # space, key
    read_some: tuple[str, ...]  # by the number of keys: space, keys: which of them, then as `read`
    state: str  # space, key
    scans: dict[tuple[bool, bool], str]  # by (reverse, keys_only): space, start, stop, now, limit
    rows_of_span: str  # within a transaction: space, start, stop, now, limit
    next_space: str  # least space, now
    put: str  # as `put_small`, then the id of its large value, or `no_large`
    put_small: str  # space, key, revision, expires, value; and the `stamp`, if any
    """Skips a row that has a large value."""
    put_large: str  # value
    no_large: tuple[None, ...]
    delete: str  # space, key
    applied: str  # space, id, expired
    put_id: str  # space, id, revision, at
    delete_ids: str  # expired, limit
    expired: str  # now, limit
    delete_expired: str  # now, limit
    head: str
    log: str  # revision, space, keys
    tail: str  # after, limit
    window: str  # after, up to, space
    prune: str  # last, limit
    forget: tuple[str, ...]  # rows: space, kept, limit; others: space, limit


def stop_of(stop: str | None) -> str | bytes:
    return b"" if stop is None else stop


def statements(layout: Layout) -> Statements:
    n = in_quotes(layout)
    return Statements(
        present=f"SELECT {_exists(layout.rows)}, {_exists(layout.version)}",
        is_default=layout == Layout(),
        version=f"SELECT version_num FROM {n.version}",
        tables=(
            *create(layout),
            f"CREATE TABLE {n.version} (version_num VARCHAR(32) NOT NULL PRIMARY KEY)",
            f"INSERT INTO {n.version} VALUES ({_text(HEAD)})",
        ),
        inline_bytes_max=sys.maxsize if layout.large_values is None else VALUE_INLINE_BYTES,
        stamp=f"SELECT {_time(layout, '?')}" if layout.created or layout.updated else None,
        scans={
            (reverse, only): _scan(layout, n, reverse, only)
            for reverse in (False, True)
            for only in (False, True)
        },
        rows_of_span=_rows_of_span(layout, n),
        read_some=_read_some(layout, n),
        **_rows(layout, n),
        no_large=() if n.large_values is None else (None,),
        **_applied(n),
        **_changes(n),
        forget=_forget(n),
    )


def _exists(table: str) -> str:
    return f"EXISTS (SELECT 1 FROM sqlite_schema WHERE name = {_text(table)})"


def _text(value: str) -> str:
    return "'" + value.replace("'", "''") + "'"


def _time(layout: Layout, milliseconds: str) -> str:
    """Return an expression for milliseconds as the column stores them."""
    if not layout.timestamps:
        return milliseconds
    return (
        f"strftime('%Y-%m-%d %H:%M:%f', min({milliseconds}, {EXPIRES_MAX}) / 1000.0, 'unixepoch')"
    )


def _milliseconds(layout: Layout, column: str) -> str:
    return (
        f"unixepoch({column}) * 1000 + CAST(substr({column}, 21, 3) AS INTEGER)"
        if layout.timestamps
        else column
    )


def _rows(layout: Layout, n: Layout) -> dict[str, str]:
    this = f"WHERE {n.space} = ? AND {n.key} = ?"
    expires = _milliseconds(layout, n.expires)
    # The index of expiries ends with these columns.
    identity = "rowid" if n.large_values is None else f"{n.space}, {n.key}"
    expired = f"""FROM {n.rows} WHERE {n.expires} <= {_time(layout, "?")}
        ORDER BY {n.expires}, {identity} LIMIT ?"""
    return {
        "read": f"SELECT {_row(layout, n)} {this}",
        "state": f"SELECT {n.revision}, {expires} FROM {n.rows} {this}",
        "next_space": f"""SELECT {n.space} FROM {n.rows} WHERE {n.space} >= ?
            AND ({n.expires} IS NULL OR {n.expires} > {_time(layout, "?")})
            ORDER BY {n.space}, {n.key} LIMIT 1""",
        "put": _put(layout, n, small=False),
        "put_small": _put(layout, n, small=n.large_values is not None),
        "put_large": f"INSERT INTO {n.large_values} ({n.value}) VALUES (CAST(? AS TEXT))",
        "delete": f"DELETE FROM {n.rows} {this}",
        "expired": f"""SELECT {n.space}, '[[],' || json_group_array({n.key}) || ']', count(*)
            FROM (SELECT {n.space}, {n.key} {expired}) GROUP BY {n.space}""",
        "delete_expired": f"""DELETE FROM {n.rows}
            WHERE ({identity}) IN (SELECT {identity} {expired})""",
    }


def _row(layout: Layout, n: Layout) -> str:
    expires = _milliseconds(layout, n.expires)
    return f"CAST({value_of(layout)} AS BLOB), {n.revision}, {expires} FROM {n.rows}"


def _read_some(layout: Layout, n: Layout) -> tuple[str, ...]:
    each = [
        f"SELECT {at}, {_row(layout, n)} WHERE {n.space} = ?1 AND {n.key} = ?{at + 2}"
        for at in range(READ_TOGETHER_MAX)
    ]
    return tuple(" UNION ALL ".join(each[:count]) for count in range(READ_TOGETHER_MAX + 1))


def _put(layout: Layout, n: Layout, *, small: bool) -> str:
    """With `small`, the statement does not name `large`, and so runs no trigger: a third of its
    cost. It has no more text than it needs: the driver finds a statement by a hash of its text, for
    each row.
    """
    stamps = [name for name in (n.created, n.updated) if name is not None]
    values = {
        n.space: "?1",
        n.key: "?2",
        n.revision: "?3",
        n.expires: _time(layout, "?4"),
        n.value: "CAST(?5 AS TEXT)",
        **{name: "?6" for name in stamps},
        **({} if small or n.large_values is None else {"large": "?7" if stamps else "?6"}),
    }
    changed = {name: f"excluded.{name}" for name in values if name not in (n.space, n.key)}
    if n.created is not None:
        expired = f"{n.expires} <= ?6"
        changed[n.created] = f"CASE WHEN {expired} THEN excluded.{n.created} ELSE {n.created} END"
    return (
        f"INSERT INTO {n.rows}({','.join(values)})VALUES({','.join(values.values())})"
        "ON CONFLICT DO UPDATE SET "
        + ",".join(f"{name}={value}" for name, value in changed.items())
        + (" WHERE large IS NULL" if small else "")
    )


def _scan(layout: Layout, n: Layout, reverse: bool, keys_only: bool) -> str:
    """Return the newest revision, then the rows, of one snapshot."""
    return f"""BEGIN; SELECT max(revision) FROM {n.changes};
        {_rows_of_span(layout, n, reverse, keys_only)}; COMMIT"""


def _rows_of_span(layout: Layout, n: Layout, reverse: bool = False, keys_only: bool = False) -> str:
    value = "x''" if keys_only else f"CAST({value_of(layout)} AS BLOB)"
    return f"""SELECT {n.key}, {value}, {n.revision}, {_milliseconds(layout, n.expires)}
        FROM {n.rows}
        WHERE {n.space} = ? AND {n.key} >= ? AND {n.key} < ?
        AND ({n.expires} IS NULL OR {n.expires} > {_time(layout, "?")})
        ORDER BY {n.key} {"DESC" if reverse else "ASC"} LIMIT ?"""


def _applied(n: Layout) -> dict[str, str]:
    return {
        "applied": f"SELECT revision FROM {n.applied} WHERE space = ? AND id = ? AND at > ?",
        "put_id": f"REPLACE INTO {n.applied} (space, id, revision, at) VALUES (?, ?, ?, ?)",
        "delete_ids": f"""DELETE FROM {n.applied} WHERE (space, id) IN
            (SELECT space, id FROM {n.applied} WHERE at <= ? ORDER BY at LIMIT ?)""",
    }


def _forget(n: Layout) -> tuple[str, ...]:
    """Return the statements that erase a space. The log keeps a row for each revision."""

    def some(identity: str, table: str, where: str = "space = ?") -> str:
        return f"WHERE ({identity}) IN (SELECT {identity} FROM {table} WHERE {where} LIMIT ?)"

    rows = f"{n.space} = ? AND {n.key} IS NOT ?"
    return (
        f"DELETE FROM {n.rows} {some(f'{n.space}, {n.key}', n.rows, rows)}",
        f"DELETE FROM {n.applied} {some('space, id', n.applied)}",
        f"UPDATE {n.changes} SET space = '', keys = '[[],[]]' {some('revision', n.changes)}",
    )


def _changes(n: Layout) -> dict[str, str]:
    return {
        "head": f"SELECT max(revision) FROM {n.changes}",
        "log": f"INSERT INTO {n.changes} (revision, space, keys) VALUES (?, ?, CAST(? AS TEXT))",
        "tail": f"""SELECT revision, space, CAST(keys AS BLOB) FROM {n.changes}
            WHERE revision > ? ORDER BY 1 LIMIT ?""",
        "window": f"""BEGIN; SELECT min(revision) FROM {n.changes};
            SELECT revision, CAST(keys AS BLOB) FROM {n.changes}
            WHERE revision > ? AND revision <= ? AND space = ? ORDER BY revision; COMMIT""",
        # One bound: of two, SQLite would search by the first and read every row up to it.
        "prune": f"""DELETE FROM {n.changes} WHERE revision <=
            min(?, (SELECT min(revision) FROM {n.changes}) - 1 + ?)""",
    }
