"""The tables of a layout in SQLAlchemy Core, from which the migrations create them.

The SQLite engine creates the same tables in a new file with its own statements, without importing
this module; a test compares the two.
"""

from typing import Literal

from sqlalchemy import (
    BigInteger,
    Column,
    Identity,
    Index,
    Integer,
    MetaData,
    PrimaryKeyConstraint,
    Table,
    Text,
    text,
)
from sqlalchemy.dialects.postgresql import TIMESTAMP

from keyhouse.engines.sql.layout import Layout

Dialect = Literal["postgresql", "sqlite"]

NAME = Text().with_variant(Text(collation="C"), "postgresql")
"""Text that sorts by its UTF-8 bytes, which is SQLite's default."""

NUMBER = BigInteger().with_variant(Integer(), "sqlite")
TIME = TIMESTAMP(timezone=True).with_variant(Text(), "sqlite")


def tables(layout: Layout, dialect: Dialect) -> MetaData:
    metadata = MetaData()
    is_sqlite = dialect == "sqlite"
    _rows(metadata, layout, is_sqlite)
    if is_sqlite and layout.large_values is not None:
        Table(
            layout.large_values,
            metadata,
            # An alias of SQLite's rowid, which is never NULL.
            Column("id", Integer, primary_key=True, nullable=True),
            Column(layout.value, Text, nullable=False),
            sqlite_strict=True,
        )
    _changes(metadata, layout, is_sqlite)
    _applied(metadata, layout, is_sqlite)
    return metadata


def _rows(metadata: MetaData, layout: Layout, is_sqlite: bool) -> None:
    time = TIME if layout.timestamps else NUMBER
    has_large_values = is_sqlite and layout.large_values is not None
    value: Column[str] = Column(layout.value, Text, nullable=has_large_values)
    default = text("CURRENT_TIMESTAMP") if layout.timestamps else None
    timestamps = [
        Column(name, time, nullable=False, server_default=default)
        for name in (layout.created, layout.updated)
        if name is not None
    ]
    revision: Column[int] = Column(layout.revision, NUMBER, nullable=False)
    table = Table(
        layout.rows,
        metadata,
        Column(layout.space, NAME, nullable=False),
        Column(layout.key, NAME, nullable=False),
        revision if is_sqlite else value,
        Column(layout.expires, time),
        *timestamps,
        *([Column("large", Integer)] if has_large_values else []),
        # Last in SQLite: columns in front of the value are read without it.
        value if is_sqlite else revision,
        PrimaryKeyConstraint(layout.space, layout.key),
        sqlite_strict=True,
        sqlite_with_rowid=not has_large_values,
    )
    expires = table.c[layout.expires]
    present = expires.is_not(None)
    Index(layout.by_expiry, expires, postgresql_where=present, sqlite_where=present)
    if layout.by_key is not None:
        Index(layout.by_key, table.c[layout.space], table.c[layout.key])


def _changes(metadata: MetaData, layout: Layout, is_sqlite: bool) -> None:
    """SQLite numbers commits globally, PostgreSQL per space: there, `id` is the global order."""
    if is_sqlite:
        Table(
            layout.changes,
            metadata,
            Column("revision", Integer, primary_key=True, nullable=True),
            Column("space", Text, nullable=False),
            Column("keys", Text, nullable=False),
            sqlite_strict=True,
        )
        return
    table = Table(
        layout.changes,
        metadata,
        Column("space", NAME, nullable=False),
        Column("revision", BigInteger, nullable=False),
        Column("keys", Text, nullable=False),
        Column("id", BigInteger, Identity(), nullable=False),
        PrimaryKeyConstraint("space", "revision"),
    )
    Index(f"{layout.changes}_id", table.c.id)
    Table(
        layout.pruned,
        metadata,
        Column("space", NAME, nullable=False),
        Column("revision", BigInteger, nullable=False),
        PrimaryKeyConstraint("space"),
    )


def _applied(metadata: MetaData, layout: Layout, is_sqlite: bool) -> None:
    table = Table(
        layout.applied,
        metadata,
        Column("space", NAME, nullable=False),
        Column("id", NAME, nullable=False),
        Column("revision", NUMBER, nullable=False),
        Column("at", NUMBER, nullable=False),
        PrimaryKeyConstraint("space", "id"),
        sqlite_strict=True,
        sqlite_with_rowid=False,
    )
    Index(f"{layout.applied}_at", table.c.at)
