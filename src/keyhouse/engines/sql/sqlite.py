"""The tables of a SQLite file, with their triggers, view and header.

The engine creates them in a new file, and the first migration with Alembic: from this one text.
"""

from typing import Final

from keyhouse.engines.sql.layout import Layout, in_quotes, quoted
from keyhouse.engines.sql.version import VERSIONS

APPLICATION_ID: Final = 0x4B455948
"""`KEYH` in the file's header identifies a Keyhouse file."""


FORMAT: Final = len(VERSIONS)
"""The version of the tables, in the file's header. A newer one is rejected."""


def value_of(layout: Layout) -> str:
    """Return the SQL expression of a row's value, inline or in the table of large values."""
    rows, value = quoted(layout.rows), quoted(layout.value)
    if layout.large_values is None:
        return f"{rows}.{value}"
    large = quoted(layout.large_values)
    return f"ifnull({rows}.{value}, (SELECT {large}.{value} FROM {large} WHERE id = large))"


def create(layout: Layout) -> tuple[str, ...]:
    """Return the statements that create everything but the table of the version."""
    n = in_quotes(layout)
    time, default = ("TEXT", " DEFAULT CURRENT_TIMESTAMP") if layout.timestamps else ("INTEGER", "")
    stamps = " ".join(
        f"{name} {time}{default} NOT NULL," for name in (n.created, n.updated) if name is not None
    )
    large = n.large_values is not None
    statements = [
        # The value is last: columns in front of it are read without it.
        f"""CREATE TABLE {n.rows} ({n.space} TEXT NOT NULL, {n.key} TEXT NOT NULL,
            {n.revision} INTEGER NOT NULL,
            {n.expires} {time}, {stamps} {"large INTEGER," if large else ""}
            {n.value} TEXT {"" if large else "NOT NULL"}, PRIMARY KEY ({n.space}, {n.key}))
            STRICT {", WITHOUT ROWID" if large else ""}""",
        f"CREATE INDEX {n.by_expiry} ON {n.rows} ({n.expires}) WHERE {n.expires} IS NOT NULL",
    ]
    if n.by_key is not None:
        statements.append(f"CREATE INDEX {n.by_key} ON {n.rows} ({n.space}, {n.key})")
    if large:
        statements += _large_values(layout, n)
    return (
        *statements,
        f"CREATE TABLE {n.changes}"
        " (revision INTEGER PRIMARY KEY, space TEXT NOT NULL, keys TEXT NOT NULL) STRICT",
        f"""CREATE TABLE {n.applied} (space TEXT NOT NULL, id TEXT NOT NULL,
            revision INTEGER NOT NULL, at INTEGER NOT NULL, PRIMARY KEY (space, id))
            STRICT, WITHOUT ROWID""",
        f"CREATE INDEX {quoted(layout.applied + '_at')} ON {n.applied} (at)",
        f"PRAGMA application_id = {APPLICATION_ID}",
        f"PRAGMA user_version = {FORMAT}",
    )


def drop(layout: Layout) -> tuple[str, ...]:
    """Return the statements that drop what `create` creates."""
    n = in_quotes(layout)
    tables = f"DROP TABLE {n.rows}", f"DROP TABLE {n.changes}", f"DROP TABLE {n.applied}"
    if n.large_values is None:
        return tables
    return f"DROP VIEW {n.documents}", *tables, f"DROP TABLE {n.large_values}"


def _large_values(layout: Layout, n: Layout) -> list[str]:
    """Return the table of large values, the triggers that delete one with its row, and the view of
    rows with values.

    The update trigger fires on changes of `large` only: other updates are a third cheaper.
    """
    triggers = [
        f"CREATE TRIGGER {quoted(f'{layout.rows}_{name}')} AFTER {event} ON {n.rows}"
        f" WHEN OLD.large IS NOT NULL BEGIN DELETE FROM {n.large_values} WHERE id = OLD.large; END"
        for name, event in (("update", "update OF large"), ("delete", "delete"))
    ]
    return [
        f"CREATE TABLE {n.large_values} (id INTEGER PRIMARY KEY, {n.value} TEXT NOT NULL) STRICT",
        *triggers,
        f"CREATE VIEW {n.documents} AS SELECT {n.space}, {n.key}, {n.revision}, {n.expires},"
        f" {value_of(layout)} AS {n.value} FROM {n.rows}",
    ]
