"""Resolve what a command works on: a system, a store and a space; open engines and files.

The system is the first argument (else KEYHOUSE_SYSTEM). The store is `--store URL`, or `--data DIR`
for the data folder of `keyhouse serve`; else KEYHOUSE_STORE, else the engine that `keyhouse serve`
uses by its settings: the environment and `keyhouse.toml`. The space is `--space NAME`, else
KEYHOUSE_SPACE, else the one in the key.
"""

import importlib
import os
import sys
import traceback
from collections.abc import (
    AsyncIterator,
    Awaitable,
    Callable,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from contextlib import asynccontextmanager, contextmanager, suppress
from difflib import get_close_matches
from pathlib import Path
from types import ModuleType
from typing import Any, BinaryIO, Final, cast

import msgspec
import typer

from keyhouse import Store, open_engine
from keyhouse.engine import Engine
from keyhouse.engines.url import public_url
from keyhouse.errors import KeyFieldError, KeyhouseError, UsageError
from keyhouse.keys import check_key
from keyhouse.nats.embedded_users import BUCKETS_USER, with_embedded_user
from keyhouse.schema import KeyMatch, Schema
from keyhouse.schema.explanation import nearest
from keyhouse.service.schema_service.system import SchemaSystem
from keyhouse.service.system import System
from keyhouse.settings.engine_urls import default_url, embedded_server, is_own_nats, with_server
from keyhouse.settings.settings import EMBEDDED, OFF
from keyhouse.settings.sources import LoadedSettings, load_settings, only_system
from keyhouse.store import MARK_SPACE
from keyhouse.systems import registry
from keyhouse.systems.registry import NAMES

__all__ = [
    "SERVICE",
    "STORE",
    "Preflight",
    "Target",
    "check_system",
    "engine_at",
    "find_store_url",
    "find_target",
    "load_object",
    "load_system",
    "open_file",
    "schemas_with",
    "serve_settings",
    "served_name",
    "space_in_key",
    "space_name",
    "store_options",
    "store_url",
    "target_of_key",
    "target_of_space",
    "targets",
    "unknown_spaces",
]

STORE: Final = "KEYHOUSE_STORE"
SERVICE: Final = "KEYHOUSE_SERVICE"

_PACKAGE: Final = str(Path(__file__).parents[1])


# Systems


def load_system(name: str) -> System:
    """Load a system, or make one of the caller's schema. Exits with 2 if the name is unknown.

    With `@PREFIX` after its name, its schemas have this text in front of all keys.
    """
    name, at, prefix = name.partition("@")
    if at:
        return load_system(name).under(prefix)
    if ":" in name:
        schema = load_object(name)
        if not isinstance(schema, Schema):
            raise typer.BadParameter(f"{name!r} is not a Schema but a {type(schema).__name__}.")
        return SchemaSystem(schema)
    check_system(name)
    return registry.load_system(name)


def served_name(name: str) -> str:
    """Return the name under which `keyhouse serve` serves a system: a schema has its own name."""
    return load_system(name).name if ":" in name else name


def check_system(name: str) -> None:
    """Exit with code 2 unless this is the name of a system or has the form module:NAME."""
    if name.partition("@")[0] not in NAMES and ":" not in name.partition("@")[0]:
        near = "".join(f" Did you mean {each}?" for each in get_close_matches(name, NAMES, 1))
        raise typer.BadParameter(
            f"{name!r} is not a system.{near} Use {', '.join(NAMES)}, or your own schema as"
            " module:NAME, as in board:BOARD."
        )


def load_object(name: str) -> Any:
    """Import `module:NAME`, also from the working directory. Exits with 2 if that fails."""
    module_name, _, attribute = name.partition(":")
    if "/" in module_name or module_name.endswith(".py"):
        stem = Path(module_name).stem
        raise typer.BadParameter(
            f"{name!r} names a file: name its module, as in {stem}:{attribute}, in the folder of"
            f" {stem}.py."
        )
    if (folder := os.getcwd()) not in sys.path:
        sys.path.insert(0, folder)
    module = _imported(name, module_name)
    try:
        return getattr(module, attribute)
    except AttributeError as error:
        schemas = [known for known, value in vars(module).items() if isinstance(value, Schema)]
        has = f" It has {', '.join(f'{module_name}:{known}' for known in schemas)}."
        raise typer.BadParameter(
            f"{name!r} was not found: {error}.{has if schemas else ''}"
        ) from None


def _imported(name: str, module_name: str) -> ModuleType:
    try:
        return importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        top = module_name.partition(".")[0]
        hint = f" Run this in the folder of {top}.py." if error.name == top else ""
        raise typer.BadParameter(f"{name!r} was not found: {error}.{hint}") from None
    except KeyhouseError:
        raise
    except Exception as error:
        reason = f"{type(error).__name__}: {error}"
        raise typer.BadParameter(f"{name!r} can't be imported: {_place(error)}{reason}.") from None


def _place(error: Exception) -> str:
    """Return the file and line of the caller's code that failed, with a colon."""
    if isinstance(error, SyntaxError):  # its text has both
        return ""
    frames = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if not frame.filename.startswith(("<", _PACKAGE)) and "importlib" not in frame.filename
    ]
    return f"{Path(frames[-1].filename).name}, line {frames[-1].lineno}: " if frames else ""


# Stores


def find_store_url(system: str | None, store: str | None, data: Path | None) -> str | None:
    """Return the store that the options, the environment or the settings name, or None."""
    if store is not None and data is not None:
        raise UsageError("Give only one of --store and --data.")
    if system is not None:
        system = system.partition("@")[0]
    if data is not None:
        if system is None:
            raise UsageError(
                "A data folder has a store for each system: name the system.", data=str(data)
            )
        default = default_url(served_name(system), data)
        return _configured_url(system, data) or _reachable_url(default, data)
    if (named := store or os.environ.get(STORE)) or os.environ.get(SERVICE):
        return named
    return _configured_url(system)


def store_url(system: str | None, store: str | None, data: Path | None) -> str:
    """Return the store that `find_store_url` finds, or raise UsageError. Without a system, that of
    the only one in the settings of `keyhouse serve`."""
    if system is None and store is None:
        system = only_system(os.environ)
    url = find_store_url(system, store, data)
    if url is None and os.environ.get(SERVICE):
        raise UsageError(
            "This command needs the store itself, not a service: give --store or --data."
        )
    if url is None:
        raise UsageError(
            "Name the store: --store sqlite:data.db, --data DIR, or KEYHOUSE_STORE."
            if system is not None
            else "Name the store: --store sqlite:data.db, or a system with --data DIR."
        )
    return url


def store_options(store: str | None, data: Path | None) -> str:
    """Return the options that name the store, for a command that a message shows.

    Empty if the environment or the settings name it. A URL with a password is not shown.
    """
    if store is not None:
        return f" --store {store if public_url(store) == store else 'URL'}"
    return "" if data is None else f" --data {data}"


def serve_settings(system: str, data: Path | None = None) -> LoadedSettings:
    """Return the settings that `keyhouse serve` has here: of `--data`, the environment and
    `keyhouse.toml`."""
    flags = {} if data is None else {"data": str(data)}
    return load_settings(flags, os.environ, None, systems=tuple({*NAMES, system}))


def _configured_url(system: str | None, data: Path | None = None) -> str | None:
    """Return the engine of a system by the settings of `keyhouse serve`, or None.

    With a data folder, as `keyhouse serve --data` finds it: an engine that is set comes first.
    """
    if system is None or (system not in NAMES and ":" not in system):
        return None
    name = served_name(system)
    loaded = serve_settings(name, data)
    if name not in loaded.engines and not {"engine", "data"} & set(loaded.sources):
        return None
    url = loaded.engine_url(name, alone=loaded.settings.systems == (system,))
    given = loaded.settings.nats
    return _reachable_url(
        url, Path(loaded.settings.data), None if given in (EMBEDDED, OFF) else given
    )


def _reachable_url(url: str, data: Path, nats: str | None = None) -> str:
    """Replace the service's own NATS server by its address: the one set, or that of the embedded
    server of the data folder."""
    return with_server(url, nats or embedded_server(data)) if is_own_nats(url) else url


Preflight = Callable[[], Awaitable[object]]
"""The work on an empty store in memory: it raises what such a store would reject."""


@asynccontextmanager
async def engine_at(
    url: str, *, existing: bool = False, preflight: Preflight | None = None
) -> AsyncIterator[Engine]:
    """Open an engine by its URL, and close it after the block.

    `existing`: do not create a store that does not exist. `preflight`: create it only after this
    succeeds, so that a rejected command leaves nothing behind.
    """
    engine = await _open_engine(url, existing, preflight)
    try:
        yield engine
    finally:
        await engine.close()


async def _open_engine(url: str, existing: bool, preflight: Preflight | None) -> Engine:
    if url.startswith("nats://"):
        url = with_embedded_user(url, Path(serve_settings(NAMES[0]).settings.data), BUCKETS_USER)
    if preflight is not None:
        with suppress(UsageError):  # it does not exist; other causes are raised again below
            return await open_engine(url, create=False)
        await preflight()
    return await open_engine(url, create=not existing)


# Spaces


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
        if space != MARK_SPACE and (target := find_target(system, space)) is not None:
            yield target


def find_target(system: System, space: str) -> Target | None:
    try:
        return Target(schemas_with(system.schemas, space)[0], space)
    except KeyFieldError:
        return None


async def unknown_spaces(system: System, engine: Engine) -> list[str]:
    """Return the spaces that hold rows and do not belong to the system."""
    spaces = [space async for space in engine.spaces()]
    return [space for space in spaces if space != MARK_SPACE and find_target(system, space) is None]


# Files


@contextmanager
def open_file(path: Path, mode: str) -> Iterator[BinaryIO]:
    """Open a file: `xb` for a new one, which only its owner can read; `rb` or `r+b` for an existing
    one.

    Written data is on disk when the block ends.
    """
    try:
        file = cast(BinaryIO, open(path, mode, opener=_private))  # noqa: SIM115  # closed below
    except FileExistsError:
        raise UsageError(
            "The file already exists: choose another name, or resume it.", file=str(path)
        ) from None
    except OSError as error:
        raise UsageError(
            "The file can't be opened: check its name, folder and permissions.",
            file=str(path),
            reason=error.strerror,
        ) from None
    with file:
        yield file
        if file.writable():
            file.flush()
            os.fsync(file.fileno())


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)
