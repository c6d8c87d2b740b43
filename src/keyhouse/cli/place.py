"""Where a command works: a schema in one space of one store. Every command names it in the same way.

The system is the first argument. The store is `--store URL`, or `--data DIR` for what `keyhouse serve` keeps in a folder;
else `KEYHOUSE_STORE`, else where `keyhouse serve` would keep the rows by its own settings: the environment and
`keyhouse.toml`. Instead of a store, the commands over data take a running service: `--service URL`, else `KEYHOUSE_SERVICE`,
with `--token`, else `KEYHOUSE_TOKEN`. The space is `--space NAME`, else `KEYHOUSE_SPACE`, else the one that the key names.
"""

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final

import msgspec

from keyhouse import Store
from keyhouse.cli.options import Where
from keyhouse.engine import Engine
from keyhouse.engines.system_urls import file_of
from keyhouse.errors import KeyFieldError, UsageError
from keyhouse.keys import check_key
from keyhouse.schema import KeyMatch, Schema
from keyhouse.schema.explanation import nearest
from keyhouse.service.system import System
from keyhouse.settings.sources import load_settings
from keyhouse.systems.registry import NAMES

STORE: Final = "KEYHOUSE_STORE"
SERVICE: Final = "KEYHOUSE_SERVICE"


class Place(msgspec.Struct, frozen=True):
    """A schema in one space. `fixed`: the settings of the store, as the key that was asked for has them."""

    schema: Schema
    space: str
    fixed: Mapping[str, Any] = {}

    def store(self, engine: Engine) -> Store:
        return Store(self.schema, engine, self.space, **self.fixed)


class Service(msgspec.Struct, frozen=True):
    """A running service, and what it may ask for."""

    url: str
    token: str | None


def service_of(where: Where) -> Service | None:
    """The service that the options or the environment name; `None` when it is a store."""
    if [where.store is not None, where.data is not None, where.service is not None].count(True) > 1:
        raise UsageError("Name the rows by one of --store, --data and --service.")
    token = where.token or os.environ.get("KEYHOUSE_TOKEN") or None
    if where.service is not None:
        return Service(where.service, token)
    if where.token is not None:
        raise UsageError("A token is for a service: name it by --service, or leave the token out.")
    if (
        where.store is not None
        or where.data is not None
        or (named := os.environ.get(SERVICE)) is None
    ):
        return None
    if os.environ.get(STORE):
        raise UsageError(
            "The environment names a store and a service: say which by --store or --service."
        )
    return Service(named, token)


def named_url(system: str | None, store: str | None, data: Path | None) -> str | None:
    """The store that the options or the environment name; `None` when neither does."""
    if store is not None and data is not None:
        raise UsageError("Name the rows by --store or by --data, not by both.")
    if data is not None:
        return _url_in(data, system)
    if (named := store or os.environ.get(STORE)) or os.environ.get(SERVICE):
        return named
    return configured_url(system)


def configured_url(system: str | None) -> str | None:
    """Return the store of a system that `keyhouse serve` uses by its settings, or None if they name none."""
    if system not in NAMES:
        return None
    loaded = load_settings({}, os.environ, None, systems=NAMES, strict=False)
    if system not in loaded.engines and not {"engine", "data"} & set(loaded.sources):
        return None
    return loaded.engine_url(system, alone=loaded.settings.systems == (system,))


def url_of(system: str | None, store: str | None, data: Path | None) -> str:
    url = named_url(system, store, data)
    if url is None and os.environ.get(SERVICE):
        raise UsageError(
            "This works on the rows, and asks no service: name them by --store or --data."
        )
    if url is None:
        raise UsageError(
            "Say which store: --store sqlite:data.db, --data DIR, or KEYHOUSE_STORE in the environment."
            if system is not None
            else "Say which store: --store sqlite:data.db, or a system with --data DIR."
        )
    return url


def named_space(space: str | None) -> str | None:
    return space if space is not None else os.environ.get("KEYHOUSE_SPACE") or None


def place_of_space(system: System, space: str | None) -> Place:
    """The space that is named; without a name, the only one that the system has."""
    space = named_space(space)
    if space is not None:
        return Place(schemas_with(system.schemas, space)[0], space)
    names = [schema.space.name for schema in system.schemas if schema.space.name is not None]
    if len(system.schemas) == len(names) == 1:
        return Place(system.schemas[0], names[0])
    hint = {"spaces": names} if names else {"space_is": system.schemas[0].space.description}
    raise UsageError("Say with --space which space.", **hint)


def place_of_key(system: System, key: str, space: str | None) -> tuple[Place, KeyMatch]:
    """Where this key is, and what it is."""
    check_key(key)
    given = named_space(space)
    places: list[tuple[Place, KeyMatch]] = []
    others: list[str] = []
    for schema in schemas_with(system.schemas, given):
        if (found := schema.find(key)) is None:
            continue
        named = space_in_key(schema, found)
        if given is not None and named not in (None, given):
            others.append(str(named))
        elif (where := given or named) is None:
            raise UsageError(
                "Say with --space which space the key is in.",
                key=key,
                space_is=schema.space.description,
            )
        else:
            places.append((Place(schema, where, _settings(schema, found)), found))
    if len(places) == 1:
        return places[0]
    if places:
        raise UsageError(
            "Several spaces have such keys: say which with --space.",
            spaces=[p.space for p, _ in places],
        )
    if others:
        raise UsageError("It is a key of another space.", key=key, space=given, key_of=others[0])
    raise _no_template(system, key)


def schemas_with(schemas: Iterable[Schema], space: str | None) -> list[Schema]:
    """Those that may have this space; when none may, the refusal of one."""
    if space is None:
        return list(schemas)
    kept: list[Schema] = []
    refusals: list[KeyFieldError] = []
    for schema in schemas:
        try:
            schema.space.bound(space)
            kept.append(schema)
        except KeyFieldError as refusal:
            refusals.append(refusal)
    if not kept:
        raise refusals[-1]
    return kept


def space_in_key(schema: Schema, found: KeyMatch) -> str | None:
    """The space that the schema, or a field of the key, names."""
    if schema.space.name is not None or schema.space.field not in found.fields:
        return schema.space.name
    return str(found.fields[schema.space.field])


def _settings(schema: Schema, found: KeyMatch) -> dict[str, Any]:
    return {name: str(value) for name, value in found.fields.items() if name in schema.fixed}


def _no_template(system: System, key: str) -> UsageError:
    [miss, *_] = nearest(system.schemas, key)
    return UsageError(
        "No template of the system builds this key.", key=key, nearest=miss.template, why=miss.why
    )


def _url_in(data: Path, system: str | None) -> str:
    """Where `keyhouse serve --data` keeps a system's rows."""
    if system is None or ":" in system:
        raise UsageError(
            "A data folder has a store for each system: name the system.", data=str(data)
        )
    return file_of(system, data)
