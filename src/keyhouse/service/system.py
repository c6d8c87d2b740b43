"""`SYSTEM = System(...)`: the one declaration of a system, from which registry, CLI, engines and
docs read.

A declaration is cheap to import, so that help and completion can list every system: `schemas`,
`service`, `remote`, `commands` and `limits` may be references (`package.module:NAME`), which are
imported when first used.
"""

import copy
from collections.abc import Callable, Mapping
from functools import cached_property
from importlib import import_module
from types import ModuleType
from typing import Any

from keyhouse.errors import UsageError
from keyhouse.layout import Layouts
from keyhouse.schema import Schema

__all__ = ["System"]


class System:
    """A keyspace and everything built on it.

    `schemas` has one schema, or one for each bucket. `service` is a `Service`: its settings and how
    it is assembled. `remote` connects the data commands to a running service, `commands` is a Typer
    app for the system's own commands, and `limits` is the module that declares its limits.
    """

    def __init__(
        self,
        name: str,
        *,
        title: str,
        doc: str | None,
        schemas: tuple[Schema, ...] | str,
        service: Any = None,
        remote: Callable[..., Any] | str | None = None,
        commands: Any = None,
        limits: str | None = None,
        layouts: Layouts | None = None,
    ) -> None:
        self.name = name
        self.title = title
        self.doc = (doc or "").strip()
        self.layouts = layouts or Layouts()
        self._references: Mapping[str, Any] = {
            "schemas": schemas,
            "service": service,
            "remote": remote,
            "commands": commands,
            "limits": limits,
        }

    def under(self, prefix: str) -> "System":
        """Return the system with the same text in front of all keys of its schemas."""
        return self.with_schemas(tuple(schema.under(prefix) for schema in self.schemas))

    def with_schemas(self, schemas: tuple[Schema, ...]) -> "System":
        """Return the system with other schemas, which declare the same records."""
        system = copy.copy(self)
        system.__dict__.pop("schemas", None)
        system._references = {**self._references, "schemas": schemas}
        return system

    def has(self, part: str) -> bool:
        """Return whether the system declares `service`, `remote`, `commands` or `limits`. Imports
        nothing."""
        return self._references[part] is not None

    @cached_property
    def schemas(self) -> tuple[Schema, ...]:
        schemas: tuple[Schema, ...] = self._load("schemas")
        return schemas

    @cached_property
    def service(self) -> Any:
        """The `Service`; UsageError if the system has none."""
        return self._load("service")

    @cached_property
    def remote(self) -> Any:
        """`connect(url, space, token)`, which returns a `Remote`; UsageError if the system has
        none."""
        return self._load("remote")

    @cached_property
    def commands(self) -> Any:
        """The Typer app of the system's own commands; UsageError if it has none."""
        return self._load("commands")

    @cached_property
    def limits(self) -> ModuleType | None:
        """The module of the system's limits, in the form of `keyhouse.limits`; None if it has
        none."""
        return self._load("limits") if self.has("limits") else None

    def _load(self, part: str) -> Any:
        reference = self._references[part]
        if reference is None:
            raise UsageError(f"This system declares no {part}.", system=self.name)
        if not isinstance(reference, str):
            return reference
        path, _, name = reference.partition(":")
        module = import_module(path)
        return getattr(module, name) if name else module
