"""The systems by name. A system's declaration is imported when it is first asked for; its parts
when they are used."""

from importlib import import_module
from typing import Any, Final

from keyhouse.errors import UsageError
from keyhouse.install import install_line
from keyhouse.layout import Layouts, register_layouts
from keyhouse.schema.nearest import nearest
from keyhouse.service.system import System

__all__ = ["NAMES", "has_service", "load_service", "load_system", "remote_of"]

NAMES: Final = (
    "rosey",
    "streamkit",
    "audiobooks",
    "playlist",
    "history",
)


def load_system(name: str) -> System:
    """Return the system of that name; UsageError, with the known names, if there is none."""
    if name not in NAMES:
        raise UsageError(
            "No such system; your own schema is module:NAME, as in board:BOARD.",
            system=name,
            **nearest(str(name), NAMES),
            known=list(NAMES),
        )
    system: System = import_module(f"keyhouse.systems.{name}").SYSTEM
    return system


def has_service(name: str) -> bool:
    """Return whether the system can be served, without importing its service."""
    return name in NAMES and load_system(name).has("service")


def load_service(name: str) -> Any:
    """Return the system's `Service`; UsageError if there is no such system, or it has no
    service."""
    system = load_system(name)
    if not system.has("service"):
        raise UsageError(
            "This system has no service yet: it can be stored, not served.",
            system=name,
            served=[known for known in NAMES if has_service(known)],
        )
    return system.service


def remote_of(system: System) -> Any:
    """Return the system's `connect(url, space, token)`, for commands that talk to its service.

    UsageError if the system has none. ImportError names the extra that is missing.
    """
    if not system.has("remote"):
        raise UsageError(
            "This system's service cannot be queried from here:"
            " name its rows with --store or --data.",
            system=system.name,
            remote=[known for known in NAMES if load_system(known).has("remote")],
        )
    try:
        return system.remote
    except ModuleNotFoundError as error:
        raise ImportError(
            f"Querying a service needs {error.name}: {install_line('client')}"
        ) from error


def _layouts_of(name: str) -> Layouts | None:
    return load_system(name).layouts if name in NAMES else None


register_layouts(_layouts_of)
