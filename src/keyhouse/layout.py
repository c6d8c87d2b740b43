"""Native layouts: the names and forms of rows in tables, items and buckets, as pure data.

A layout renames the engine's own table; it is never a copy, and the engine's guarantees are the
same. A system declares its layouts in its `SYSTEM`, and a URL selects them by name:
`sqlite:bot.db?layout=rosey`. Engines look names up here and know no system: the registry of systems
registers a lookup with `register_layouts`.
"""

from collections.abc import Callable
from typing import Final

import msgspec

from keyhouse.errors import DeclarationError

__all__ = [
    "DynamodbLayout",
    "IndexedPath",
    "JetstreamLayout",
    "Layouts",
    "SqlLayout",
    "find_layouts",
    "register_layouts",
]


class SqlLayout(msgspec.Struct, frozen=True, kw_only=True):
    """Names of tables, columns and indexes. Every statement quotes them.

    `timestamps`: times are `timestamptz` in PostgreSQL, and in SQLite text that compares with
    CURRENT_TIMESTAMP; expiries are clamped to `EXPIRES_MAX`. Without it times are integers,
    milliseconds since 1970. `large_values` and the view `documents` are used by SQLite only, for
    values too large to be stored inline; without them every value is stored in its row. `pruned` is
    used by PostgreSQL only.
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
    def named(name: str) -> "SqlLayout":
        """Default columns in tables prefixed with `name`, for a database that is shared."""
        return SqlLayout(
            rows=f"{name}_rows",
            by_expiry=f"{name}_rows_expires",
            large_values=f"{name}_large_values",
            documents=f"{name}_documents",
            changes=f"{name}_changes",
            applied=f"{name}_applied",
            pruned=f"{name}_pruned",
            version=f"{name}_version",
        )


class IndexedPath(msgspec.Struct, frozen=True):
    """An attribute joined from others: `/1446/1450` from two. It stops at the first absent or empty
    part.

    `parts` are flat attributes that hold text; `/`, `|` and `%` in a part are percent-encoded.
    `index` is the local secondary index on the attribute, for plain queries with `begins_with`.
    """

    attribute: str
    parts: tuple[str, ...]
    index: str


class DynamodbLayout(msgspec.Struct, frozen=True, kw_only=True):
    """Names of attributes. `members`: an object in a member listed here is stored flat; the members
    of `attr` become attributes with the prefix given for it. `lists`: a list, or true or false,
    in a member listed here is an attribute of that name.

    `value` holds a document that has no such member, or would not come back byte for byte; `shape`
    lists the attributes of one that does, in the order of its members. See
    `engines/dynamodb/flattening.py`.
    """

    space: str = "space"
    key: str = "key"
    value: str = "value"
    revision: str = "revision"
    expires: str = "expires"
    ttl: str = "ttl"
    sweep: str = "sweep"
    shape: str = "shape"
    members: dict[str, str] = {}
    lists: tuple[str, ...] = ()
    paths: tuple[IndexedPath, ...] = ()

    def __post_init__(self) -> None:
        own = [
            self.space,
            self.key,
            self.value,
            self.revision,
            self.expires,
            self.ttl,
            self.sweep,
            self.shape,
        ]
        own += [*self.lists, *(path.attribute for path in self.paths)]
        prefixes = list(self.members.values())
        taken = [name for name in own if any(name.startswith(prefix) for prefix in prefixes)]
        nested = [
            one
            for one in prefixes
            for other in prefixes
            if one is not other and one.startswith(other)
        ]
        if taken or nested or len(own) != len(set(own)) or "" in own:
            raise DeclarationError(
                "Two attributes of the layout could have the same name.",
                names=own,
                prefixes=prefixes,
            )


class JetstreamLayout(msgspec.Struct, frozen=True, kw_only=True):
    """Buckets. `bucket_per_space`: one bucket per space, named by `prefix` and the space."""

    bucket_per_space: bool = False
    prefix: str = ""


class Layouts(msgspec.Struct, frozen=True, kw_only=True):
    """The layouts of one system; None selects the engine's default.

    `default_engine` is the URL of the engine where none is set: `nats:` is the service's own NATS
    server. None: a SQLite file in the data folder.
    """

    sql: SqlLayout | None = None
    dynamodb: DynamodbLayout | None = None
    jetstream: JetstreamLayout | None = None
    default_engine: str | None = None


DEFAULT: Final = Layouts()

_lookups: list[Callable[[str], Layouts | None]] = []


def register_layouts(lookup: Callable[[str], Layouts | None]) -> None:
    """Add a lookup: it returns the layouts of a name, or None for a name that is not its own."""
    _lookups.append(lookup)


def find_layouts(name: str) -> Layouts:
    """Return the layouts registered under `name`; the defaults if there are none."""
    for lookup in _lookups:
        if (layouts := lookup(name)) is not None:
            return layouts
    return DEFAULT
