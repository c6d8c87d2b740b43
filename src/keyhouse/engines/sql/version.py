"""Which versions of the tables this code knows, without asking Alembic: a test holds the two together."""

from typing import Final

from keyhouse.errors import NewerError, UnreadableError, UsageError

VERSIONS: Final = ("0001",)
"""In order; the last is what the engines work with. They are what the table `version` of a layout holds."""

HEAD: Final = VERSIONS[-1]


def check_version(found: str | None, **where: str) -> None:
    """Whether an engine of this code can work with tables that say they are of this version. `where` they are is told."""
    if found == HEAD:
        return
    if found is None:
        raise UnreadableError(
            "The tables do not say which version they are; restore them from a backup.", **where
        )
    if found in VERSIONS:
        raise UsageError(
            "The tables are of an older version; bring them up with: keyhouse tables up URL",
            **where,
            version=found,
            needed=HEAD,
        )
    raise _newer(found, **where)


def is_step_up(found: str | None, to: str) -> bool:
    """Whether the tables are to be changed to come from one version (`None`: there are none) up to another."""
    _check(found, to, "head")
    goal = HEAD if to == "head" else to
    if found is not None and found > goal:
        raise UsageError(
            "The tables are at a newer version; to go back, go down.", version=found, to=goal
        )
    return found != goal


def is_step_down(found: str | None, to: str) -> bool:
    """The same for the way down, whose end is `base`: no tables."""
    _check(found, to, "base")
    if found is not None and to != "base" and found < to:
        raise UsageError(
            "The tables are at an older version; to go on, go up.", version=found, to=to
        )
    return found is not None and found != to


def _check(found: str | None, to: str, end: str) -> None:
    """Versions are text of one length, so they compare as they stand."""
    if found is not None and found not in VERSIONS:
        raise _newer(found)
    if to != end and to not in VERSIONS:
        raise UsageError("There is no such version of the tables.", to=to, known=[*VERSIONS, end])


def _newer(found: str, **where: str) -> NewerError:
    return NewerError(
        "The tables were made by a newer Keyhouse; use that one.",
        **where,
        version=found,
        known=HEAD,
    )
