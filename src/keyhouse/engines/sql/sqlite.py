"""What a SQLite file holds beside its tables, for the engine that makes one and for the migrations alike."""

from typing import Final

from keyhouse.engines.sql.layout import Layout, quoted

APPLICATION_ID: Final = 0x4B455948
"""`KEYH`, in the file's header: this file is Keyhouse's."""


def header(version: int) -> tuple[str, ...]:
    """Whose file it is, and which version its tables are, where a program sees it before it reads any."""
    return (f"PRAGMA application_id = {APPLICATION_ID}", f"PRAGMA user_version = {version}")


def value_of(layout: Layout) -> str:
    """The value of a row, wherever it lies."""
    rows, value = quoted(layout.rows), quoted(layout.value)
    if layout.large_values is None:
        return f"{rows}.{value}"
    large = quoted(layout.large_values)
    return f"ifnull({rows}.{value}, (SELECT {large}.{value} FROM {large} WHERE id = large))"


def beside_the_tables(layout: Layout) -> tuple[str, ...]:
    """Triggers that drop a large value with its row, and a view that shows every row with its value.

    One is on changes of `large` alone: a statement that leaves it as it is does without, and is a third cheaper.
    """
    if layout.large_values is None:
        return ()
    rows, large = quoted(layout.rows), quoted(layout.large_values)
    columns = ", ".join(
        quoted(name) for name in (layout.space, layout.key, layout.revision, layout.expires)
    )
    return (
        *(
            f"CREATE TRIGGER {quoted(f'{layout.rows}_{name}')} AFTER {event} ON {rows} WHEN OLD.large IS NOT NULL "
            f"BEGIN DELETE FROM {large} WHERE id = OLD.large; END"
            for name, event in (("update", "update OF large"), ("delete", "delete"))
        ),
        f"CREATE VIEW {quoted(layout.documents)} AS "
        f"SELECT {columns}, {value_of(layout)} AS {quoted(layout.value)} FROM {rows}",
    )
