"""Resolve which spaces of a system a command works on: `--space NAME`, else KEYHOUSE_SPACE, else
the one in the key."""

import os
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from typing import Any

import msgspec

from keyhouse import Store
from keyhouse.engine import Engine
from keyhouse.errors import KeyFieldError, UsageError
from keyhouse.keys import check_key
from keyhouse.schema import KeyMatch, Schema
from keyhouse.schema.explanation import nearest
from keyhouse.service.system import System
from keyhouse.store import stored_spaces

__all__ = [
    "Target",
    "find_target",
    "schemas_with",
    "space_name",
    "target_of_key",
    "target_of_space",
    "targets",
    "unknown_spaces",
]


class Target(msgspec.Struct, frozen=True):
    """A schema in one space. `fixed` has the values of the store's fixed fields, from the key."""

    schema: Schema
    space: str
    fixed: Mapping[str, Any] = {}

    def store(self, engine: Engine) -> Store:
        return Store(self.schema, engine, self.space, **self.fixed)


def space_name(space: str | None) -> str | None:
    return space if space is not None else os.environ.get("KEYHOUSE_SPACE") or None


def target_of_space(system: System, space: str | None) -> Target:
    """Return the named space; without a name, the only space of the system."""
    space = space_name(space)
    if space is not None:
        return Target(schemas_with(system.schemas, space)[0], space)
    names = [schema.space.name for schema in system.schemas if schema.space.name is not None]
    if len(system.schemas) == len(names) == 1:
        return Target(system.schemas[0], names[0])
    hint = {"spaces": names} if names else {"space_is": system.schemas[0].space.description}
    raise UsageError("Name the space: --space NAME.", **hint)


def target_of_key(system: System, key: str, space: str | None) -> tuple[Target, KeyMatch]:
    """Return the space of a key, and the declaration that the key matches."""
    check_key(key)
    given = space_name(space)
    matches: list[tuple[Target, KeyMatch]] = []
    others: list[str] = []
    for schema in schemas_with(system.schemas, given):
        if (found := schema.find(key)) is None:
            continue
        named = space_in_key(schema, found)
        if given is not None and named not in (None, given):
            others.append(str(named))
        elif (where := given or named) is None:
            raise UsageError(
                "Name the space of the key: --space NAME.",
                key=key,
                space_is=schema.space.description,
            )
        else:
            fixed = {
                name: str(value) for name, value in found.fields.items() if name in schema.fixed
            }
            matches.append((Target(schema, where, fixed), found))
    if len(matches) == 1:
        return matches[0]
    if matches:
        raise UsageError(
            "Several spaces have such keys: choose with --space.",
            spaces=[target.space for target, _ in matches],
        )
    if others:
        raise UsageError(
            "The key belongs to another space.", key=key, space=given, key_of=others[0]
        )
    [miss, *_] = nearest(system.schemas, key)
    raise UsageError(
        "The key matches no template of the system.", key=key, nearest=miss.template, why=miss.why
    )


def schemas_with(schemas: Iterable[Schema], space: str | None) -> list[Schema]:
    """Return the schemas that accept this space name; raises KeyFieldError if none does."""
    if space is None:
        return list(schemas)
    accepted: list[Schema] = []
    errors: list[KeyFieldError] = []
    for schema in schemas:
        try:
            schema.space.bound(space)
            accepted.append(schema)
        except KeyFieldError as error:
            errors.append(error)
    if not accepted:
        raise _unknown_space(space, errors)
    return accepted


def _unknown_space(space: str, errors: Sequence[KeyFieldError]) -> KeyFieldError:
    """Return the error of a name that no schema accepts."""
    names = [error.fields["only"] for error in errors if "only" in error.fields]
    if 1 < len(names) == len(errors):
        return KeyFieldError("There is no such space.", space=space, spaces=names)
    return errors[-1]


def space_in_key(schema: Schema, found: KeyMatch) -> str | None:
    """Return the space that the schema, or a field of the key, names."""
    if schema.space.name is not None or schema.space.field not in found.fields:
        return schema.space.name
    return str(found.fields[schema.space.field])


async def targets(
    system: System, engine: Engine, spaces: Sequence[str] | None
) -> AsyncIterator[Target]:
    """Iterate over the named spaces, or over all of the system's spaces that hold rows.

    A space that no schema of the system accepts is skipped, unless it is named: then it is an
    error.
    """
    if spaces:
        for space in spaces:
            yield Target(schemas_with(system.schemas, space)[0], space)
        return
    async for space in engine.spaces():
        if (target := find_target(system, space)) is not None:
            yield target


def find_target(system: System, space: str) -> Target | None:
    try:
        return Target(schemas_with(system.schemas, space)[0], space)
    except KeyFieldError:
        return None


async def unknown_spaces(system: System, engine: Engine) -> list[str]:
    """Return the spaces that hold rows and do not belong to the system."""
    spaces = stored_spaces(engine)
    return [space async for space in spaces if find_target(system, space) is None]
