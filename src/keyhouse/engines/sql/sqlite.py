"""The header, triggers and view of a SQLite file, for the engine and the migrations."""

from typing import Final

from keyhouse.engines.sql.layout import Layout, quoted

APPLICATION_ID: Final = 0x4B455948
"""`KEYH` in the file's header identifies a Keyhouse file."""


def header(version: int) -> tuple[str, ...]:
    """Return the pragmas that mark the file as Keyhouse's and record the version of its tables."""
    return (f"PRAGMA application_id = {APPLICATION_ID}", f"PRAGMA user_version = {version}")


def value_of(layout: Layout) -> str:
    """Return the SQL expression of a row's value, inline or in the table of large values."""
    rows, value = quoted(layout.rows), quoted(layout.value)
    if layout.large_values is None:
        return f"{rows}.{value}"
    large = quoted(layout.large_values)
    return f"ifnull({rows}.{value}, (SELECT {large}.{value} FROM {large} WHERE id = large))"


def beside_the_tables(layout: Layout) -> tuple[str, ...]:
    """Return the triggers that delete a large value with its row, and the view of rows with values.

    The update trigger fires on changes of `large` only: other updates are a third cheaper.
    """
    if layout.large_values is None:
        return ()
    rows, large = quoted(layout.rows), quoted(layout.large_values)
    columns = ", ".join(
        quoted(name) for name in (layout.space, layout.key, layout.revision, layout.expires)
    )
    return (
        *(
            f"CREATE TRIGGER {quoted(f'{layout.rows}_{name}')} AFTER {event} ON {rows}"
            f" WHEN OLD.large IS NOT NULL BEGIN DELETE FROM {large} WHERE id = OLD.large; END"
            for name, event in (("update", "update OF large"), ("delete", "delete"))
        ),
        f"CREATE VIEW {quoted(layout.documents)} AS "
        f"SELECT {columns}, {value_of(layout)} AS {quoted(layout.value)} FROM {rows}",
    )
