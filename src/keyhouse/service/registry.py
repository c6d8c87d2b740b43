"""The installed systems by name: entry points of the group `keyhouse.systems`.

A package declares one in its `pyproject.toml`, and needs no line of this library:

    [project.entry-points."keyhouse.systems"]
    rosey = "keyhouse_rosey:SYSTEM"

A system's declaration is imported when it is first asked for; its parts when they are used.
"""

from functools import cache
from typing import Any, Final

from keyhouse.advice.arguments import checked
from keyhouse.advice.install import install_line, systems_line
from keyhouse.advice.nearest import nearest
from keyhouse.errors import UsageError
from keyhouse.layout import Layouts, register_layouts
from keyhouse.service.system import System

__all__ = ["has_service", "load_service", "load_system", "remote_of", "system_names"]

GROUP: Final = "keyhouse.systems"


@cache
def _installed() -> dict[str, Any]:
    """Return the entry points by name. Reads the metadata of every installed package, once."""
    from importlib.metadata import entry_points  # late: 40 ms that a program of the store saves

    return {point.name: point for point in sorted(entry_points(group=GROUP))}


def system_names() -> tuple[str, ...]:
    """Return the names of the installed systems, in alphabetical order. Imports none of them."""
    return tuple(_installed())


@checked(UsageError)
def load_system(name: str) -> System:
    """Return the system of that name; UsageError, with the known names, if there is none."""
    point = _installed().get(str(name))
    if point is None:
        line = systems_line(str(name))
        raise UsageError(
            "No such system is installed; your own schema is module:NAME, as in board:BOARD.",
            system=name,
            **({"install": line} if line else {}),
            **nearest(name, system_names()),
        )
    system: System = point.load()
    return system


def has_service(name: str) -> bool:
    """Return whether the system can be served, without importing its service."""
    return name in system_names() and load_system(name).has("service")


def load_service(name: str) -> Any:
    """Return the system's `Service`; UsageError if there is no such system, or it has no
    service."""
    system = load_system(name)
    if not system.has("service"):
        raise UsageError(
            "This system has no service yet: it can be stored, not served.",
            system=name,
            served=[known for known in system_names() if has_service(known)],
        )
    return system.service


def remote_of(system: System) -> Any:
    """Return the system's `connect(url, space, token)`, for commands that talk to its service.

    UsageError if the system has none. ImportError names the extra that is missing.
    """
    if not system.has("remote"):
        raise UsageError(
            "This system's service cannot be queried from here:"
            " name the engine that has its rows, or the data folder, as --store.",
            system=system.name,
            remote=[known for known in system_names() if load_system(known).has("remote")],
        )
    try:
        return system.remote
    except ModuleNotFoundError as error:
        raise ImportError(
            f"Querying a service needs {error.name}: {install_line('client')}"
        ) from error


def _layouts_of(name: str) -> Layouts | None:
    return load_system(name).layouts if name in system_names() else None


register_layouts(_layouts_of)
