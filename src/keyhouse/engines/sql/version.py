"""Known versions of the tables, without importing Alembic. A test compares the two."""

from typing import Final

from keyhouse.errors import NewerError, UnreadableError, UsageError

VERSIONS: Final = ("0001",)
"""In order, as stored in a layout's `version` table. The engines need the last one."""

HEAD: Final = VERSIONS[-1]


def check_version(found: str | None, **where: str) -> None:
    """Raise unless the tables have the version that engines need. Errors include `where`."""
    if found == HEAD:
        return
    if found is None:
        raise UnreadableError(
            "The version of the tables is missing; restore them from a backup.", **where
        )
    if found in VERSIONS:
        raise UsageError(
            "The tables have an older version; upgrade them with: keyhouse tables upgrade URL",
            **where,
            version=found,
            needed=HEAD,
        )
    raise _newer(found, **where)


def needs_upgrade(found: str | None, to: str) -> bool:
    """Return whether an upgrade from `found` (None: no tables) to `to` changes anything."""
    _check(found, to, "head")
    goal = HEAD if to == "head" else to
    if found is not None and found > goal:
        raise UsageError(
            "The tables have a newer version; downgrade to go back.", version=found, to=goal
        )
    return found != goal


def needs_downgrade(found: str | None, to: str) -> bool:
    """Return whether a downgrade from `found` to `to` changes anything; `base` means no tables."""
    _check(found, to, "base")
    if found is not None and to != "base" and found < to:
        raise UsageError("The tables have an older version; upgrade instead.", version=found, to=to)
    return found is not None and found != to


def _check(found: str | None, to: str, end: str) -> None:
    """Raise for unknown versions. Known ones have equal length, so they compare as text."""
    if found is not None and found not in VERSIONS:
        raise _newer(found)
    if to != end and to not in VERSIONS:
        raise UsageError("Unknown version of the tables.", to=to, known=[*VERSIONS, end])


def _newer(found: str, **where: str) -> NewerError:
    return NewerError(
        "A newer Keyhouse created the tables; use that version.",
        **where,
        version=found,
        known=HEAD,
    )
