"""The rule of account names in the request types of a system."""

import inspect
from collections.abc import Iterator, Mapping
from types import ModuleType
from typing import Any, Final

import msgspec
import pytest

INVISIBLE: Final = (
    *("\u200b", "\u200d", "\u202e", "\u2066", "\ufe0f", "\U000e0041", "\u3164", "\u034f", "\xad"),
    *("\ufeff", "\u180e", "\u2800", "\ue000", "\u0378", "\x7f", "\u2028"),
)
"""One character of each kind."""

MEMBERS: Final = ("username", "requested_by")


def check_names(
    *modules: ModuleType, lookups: frozenset[str], values: Mapping[str, Any]
) -> set[str]:
    """Assert that each Struct of the modules that names an account rejects invisible characters,
    and has the normal form of other names; return their names. `lookups` are those that only look
    up an account, or show it; `values` are other members that they need."""
    checked = set()
    for kind, member in _naming(modules):
        if kind.__name__ in lookups:
            continue
        more = {name: values[name] for name in values if name in kind.__struct_fields__}
        made = msgspec.convert({member: "Ａnn  Lee", **more}, kind)
        assert getattr(made, member) == "Ann Lee", kind
        for character in INVISIBLE:
            with pytest.raises(msgspec.ValidationError):
                msgspec.convert({member: f"an{character}n", **more}, kind)
        checked.add(kind.__name__)
    return checked


def _naming(modules: tuple[ModuleType, ...]) -> Iterator[tuple[type[msgspec.Struct], str]]:
    for module in modules:
        for _, kind in inspect.getmembers(module, inspect.isclass):
            if issubclass(kind, msgspec.Struct) and kind.__module__ == module.__name__:
                for member in MEMBERS:
                    if member in kind.__struct_fields__:
                        yield kind, member
