"""Known versions of the tables, without importing Alembic. A test compares the two."""

from typing import Final

from keyhouse.advice.nearest import nearest
from keyhouse.errors import NewerError, UnreadableError, UsageError

VERSIONS: Final = ("0001",)
"""In order, as stored in a layout's `version` table. The engines need the last one."""

HEAD: Final = VERSIONS[-1]


def check_version(version: str | None, **where: str) -> None:
    """Raise unless the tables have the version that engines need. Errors include `where`."""
    if version == HEAD:
        return
    if version is None:
        raise UnreadableError(
            "The version of the tables is missing; restore them from a backup.", **where
        )
    if version in VERSIONS:
        raise UsageError(
            "The tables have an older version; upgrade them with: keyhouse tables upgrade URL",
            **where,
            version=version,
            needed=HEAD,
        )
    raise _newer(version, **where)


def needs_upgrade(version: str | None, to: str) -> bool:
    """Return whether an upgrade from a version (None: no tables) to `to` changes anything."""
    _check(version, to, "head")
    goal = HEAD if to == "head" else to
    if version is not None and version > goal:
        raise UsageError(
            "The tables have a newer version; downgrade to go back.", version=version, to=goal
        )
    return version != goal


def needs_downgrade(version: str | None, to: str) -> bool:
    """Return whether a downgrade to `to` changes anything; `base` means no tables."""
    _check(version, to, "base")
    if version is not None and to != "base" and version < to:
        raise UsageError(
            "The tables have an older version; upgrade instead.", version=version, to=to
        )
    return version is not None and version != to


def _check(version: str | None, to: str, end: str) -> None:
    """Raise for unknown versions. Known ones have equal length, so they compare as text."""
    if version is not None and version not in VERSIONS:
        raise _newer(version)
    if to != end and to not in VERSIONS:
        raise UsageError("Unknown version of the tables.", to=to, **nearest(to, [*VERSIONS, end]))


def _newer(version: str, **where: str) -> NewerError:
    return NewerError(
        "A newer Keyhouse created the tables; use that version.",
        **where,
        version=version,
        known=HEAD,
    )
