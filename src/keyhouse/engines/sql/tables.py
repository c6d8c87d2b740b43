"""The tables of a layout, defined once, in SQLAlchemy Core: the migrations make them from here.

The SQLite engine makes the same tables in a new file by its own statements, without importing any of this; a test
compares the two.
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
"""Text in the order of its UTF-8 bytes, which in SQLite it has anyway."""

NUMBER = BigInteger().with_variant(Integer(), "sqlite")
TIME = TIMESTAMP(timezone=True).with_variant(Text(), "sqlite")


def tables(layout: Layout, dialect: Dialect) -> MetaData:
    metadata = MetaData()
    lite = dialect == "sqlite"
    _rows(metadata, layout, lite)
    if lite and layout.large_values is not None:
        Table(
            layout.large_values,
            metadata,
            Column(
                "id", Integer, primary_key=True, nullable=True
            ),  # SQLite's own row id, which it never is
            Column(layout.value, Text, nullable=False),
            sqlite_strict=True,
        )
    _changes(metadata, layout, lite)
    _applied(metadata, layout, lite)
    return metadata


def _rows(metadata: MetaData, layout: Layout, lite: bool) -> None:
    time = TIME if layout.timestamps else NUMBER
    apart = lite and layout.large_values is not None
    value: Column[str] = Column(layout.value, Text, nullable=apart)
    default = text("CURRENT_TIMESTAMP") if layout.timestamps else None
    stamps = [
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
        revision if lite else value,
        Column(layout.expires, time),
        *stamps,
        *([Column("large", Integer)] if apart else []),
        value
        if lite
        else revision,  # SQLite comes to the columns in front of the value without reading that
        PrimaryKeyConstraint(layout.space, layout.key),
        sqlite_strict=True,
        sqlite_with_rowid=not apart,
    )
    expires = table.c[layout.expires]
    present = expires.is_not(None)
    Index(layout.by_expiry, expires, postgresql_where=present, sqlite_where=present)
    if layout.by_key is not None:
        Index(layout.by_key, table.c[layout.space], table.c[layout.key])


def _changes(metadata: MetaData, layout: Layout, lite: bool) -> None:
    """SQLite numbers commits over all spaces, PostgreSQL within each: there, `id` gives the order over all."""
    if lite:
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


def _applied(metadata: MetaData, layout: Layout, lite: bool) -> None:
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
