"""How rows look natively in a SQL database: what tables, columns and indexes are called, and how times are written.

A layout is the engine's own table under other names, never a copy. Whatever it says, the engine keeps the same promise.
"""

from typing import Final

import msgspec


class Layout(msgspec.Struct, frozen=True, kw_only=True):
    """Names, as they stand in the database: every statement quotes them.

    `timestamps`: times are `timestamptz` in PostgreSQL, and in SQLite text that compares with CURRENT_TIMESTAMP: dates end
    at `EXPIRES_MAX`, and a later expiry is kept as that. Without it they are integers, milliseconds since 1970.
    `large_values` and the view `documents` are SQLite's own, for values that do not fit beside their key: without them every
    value lies in its row. `pruned` is PostgreSQL's own.
    """

    rows: str = "rows"
    space: str = "space"
    key: str = "key"
    value: str = "value"
    revision: str = "revision"
    expires: str = "expires"
    created: str | None = None
    updated: str | None = None
    timestamps: bool = False
    by_expiry: str = "rows_expires"
    by_key: str | None = None
    large_values: str | None = "large_values"
    documents: str = "documents"
    changes: str = "changes"
    applied: str = "applied"
    pruned: str = "pruned"
    version: str = "rows_version"

    @staticmethod
    def named(name: str) -> "Layout":
        """The usual columns, in tables that all carry the name: for a database that others use as well."""
        return Layout(
            rows=f"{name}_rows",
            by_expiry=f"{name}_rows_expires",
            large_values=f"{name}_large_values",
            documents=f"{name}_documents",
            changes=f"{name}_changes",
            applied=f"{name}_applied",
            pruned=f"{name}_pruned",
            version=f"{name}_version",
        )


_OF_SYSTEMS: Final = {
    "rosey": Layout(
        rows="plugin_kv_storage",
        space="plugin_name",
        expires="expires_at",
        created="created_at",
        updated="updated_at",
        timestamps=True,
        by_expiry="idx_kv_expires_at",
        by_key="idx_kv_plugin_prefix",
        large_values=None,
        changes="plugin_kv_changes",
        applied="plugin_kv_applied",
        pruned="plugin_kv_pruned",
        version="plugin_kv_version",
    ),
}


def layout_of(system: str) -> Layout:
    """The layout that a system's document asks for, or else the usual one under the system's name."""
    return _OF_SYSTEMS.get(system) or Layout.named(system)


def quoted(name: str) -> str:
    """A name as it stands in a statement."""
    return '"' + name.replace('"', '""') + '"'


def in_quotes(layout: Layout) -> Layout:
    """The same layout with every name as it stands in a statement."""
    names = {
        name: quoted(value)
        for name, value in msgspec.structs.asdict(layout).items()
        if isinstance(value, str)
    }
    return msgspec.structs.replace(layout, **names)
