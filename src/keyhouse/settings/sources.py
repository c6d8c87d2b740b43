"""Load settings from command-line flags, the environment and `keyhouse.toml`, in that order of
precedence.

`KEYHOUSE_NATS_PORT` is `nats_port`; `KEYHOUSE_ROSEY_SWEEP_SECONDS` is `sweep_seconds` in the table
`[rosey]`, and likewise for the table `[http]`. An unknown name is an error: a service that does not
start is better than one that silently ignores a misspelled limit. Tables and variables of a system
that is not served are another matter: they belong to a schema of the user's own, which another
process serves from the same file. Every command ignores them; `serve` names them in the log, and
rejects those that look like a misspelled name of what it serves.

`serve` and the command line read settings here and nowhere else. This package imports no server and
no engine driver, so that a command starts quickly.
"""

import difflib
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import msgspec

from keyhouse.advice.nearest import is_misspelled
from keyhouse.errors import UsageError
from keyhouse.settings.engine_urls import default_url, is_server, url_of
from keyhouse.settings.parser import FileText, plain_value, read_settings, unknown_setting
from keyhouse.settings.settings import ServerSettings

__all__ = [
    "CORS_ORIGINS",
    "STUDIO",
    "LoadedSettings",
    "is_reserved",
    "load_settings",
    "named_systems",
    "only_system",
]

FILE: Final = "keyhouse.toml"
PREFIX: Final = "KEYHOUSE_"
HTTP: Final = "http"
"""The HTTP listen address, and the table of HTTP settings, which accepts it as `listen`."""

CORS_ORIGINS: Final = "http.cors_origins"
STUDIO: Final = "studio"

_PROGRAM: Final = tuple(field.name for field in msgspec.structs.fields(ServerSettings))

_ALIKE: Final = 0.75
"""Names at least this similar are treated as a name and its misspelling."""

_IGNORED = re.compile(
    r"KEYHOUSE_(SERVICE(_|$)|PORT(_|$)|ENGINES$|FOLDER$|SEED$|SOAK$|SPACE$|STORE$|SYSTEM$|TOKEN$|URL$)"
)
"""Variables that an orchestrator sets for a service named keyhouse, or that other commands and the
tests read."""


_HTTP_VALUE: Final = re.compile(r"^\s*[\"']?http[\"']?\s*=\s*[\"']", re.MULTILINE)
_HTTP_TABLE: Final = re.compile(r"^\s*(\[\s*http\b|http\s*\.)", re.MULTILINE)


class LoadedSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The program's settings, and the tables that the systems and the HTTP listener parse
    themselves.

    `engines` has the engine URL of each system with its own; `sources` the flag, variable or file
    that each setting came from; `ignored` the tables and variables of systems that are not known.
    """

    settings: ServerSettings
    tables: Mapping[str, Mapping[str, Any]]
    engines: Mapping[str, str]
    http: Mapping[str, Any]
    sources: Mapping[str, str] = {}
    ignored: Sequence[str] = ()

    @contextmanager
    def name_sources(self) -> Iterator[None]:
        """Add the source of a rejected setting to any UsageError raised in the block."""
        with _name_sources(self.sources):
            yield

    def engine_url(self, system: str, *, alone: bool) -> str:
        """Return the URL of the engine that holds a system's rows.

        `alone`: no other system shares the `engine` setting, so that it may name a layout or
        bucket.
        """
        if (own := self.engines.get(system)) is not None:
            return url_of(system, own, alone=True)
        if (shared := self.settings.engine) is not None:
            return url_of(system, shared, alone=alone)
        return default_url(system, Path(self.settings.data))

    def has_own_file(self, system: str) -> bool:
        """Return whether a system's rows are in a SQLite file of the data folder, which no other
        host serves."""
        file = f"sqlite:{Path(self.settings.data) / system}.db"
        return self.engine_url(system, alone=True).startswith(file)

    def studio_url(self) -> str:
        """Return the URL of the engine that holds the Studio's own rows: that of its setting, else
        the one that the systems share, if it is a server, else a file in the data folder."""
        own, shared = self.engines.get(STUDIO), self.settings.engine
        if own is None and shared is not None and is_server(shared):
            own = url_of(STUDIO, shared, alone=False)
        return own or f"sqlite:{Path(self.settings.data) / STUDIO}.db"


def is_reserved(name: str) -> bool:
    """Return whether a system cannot have this name: its table would be a setting's name."""
    return name in (HTTP, STUDIO) or name in _PROGRAM


def load_settings(
    flags: Mapping[str, Any],
    environment: Mapping[str, str],
    file: Path | None,
    *,
    systems: Sequence[str],
    served: Sequence[str] | None = None,
) -> LoadedSettings:
    """Load the settings of the program and of `systems`.

    `file` must exist if given; without it, `keyhouse.toml` in the working directory is read if it
    exists. Unknown tables and variables are ignored. With `served`, the systems that this process
    serves, those that resemble the name of a setting or of one of these raise UsageError. Paths in
    a file are relative to its folder, others to the working directory.
    """
    program: dict[str, Any] = {}
    tables: dict[str, dict[str, Any]] = {name: {} for name in (HTTP, STUDIO, *systems)}
    named = environment.get(f"{PREFIX}CONFIG")
    path = file or (Path(named) if named else None)
    sources: dict[str, str] = {}
    with _name_sources(sources):
        unknown_tables: list[str] = []
        for name, value in _read_file(path).items():
            if path is not None:
                value = FileText.within(value, path.parent)
            sources |= dict.fromkeys(
                [name, *(f"{name}.{each}" for each in _names(value))], str(path or FILE)
            )
            if name not in tables or (name == HTTP and not isinstance(value, dict)):
                if isinstance(value, dict) and not is_reserved(name):
                    unknown_tables.append(name)
                else:
                    program[name] = value
            elif isinstance(value, dict):
                tables[name] |= value
            else:
                raise UsageError(
                    "These settings are a table of the file: write its name in [ ] above them.",
                    setting=name,
                )
        unknown_variables = _add_environment(program, tables, environment, sources)
        if "listen" in tables[HTTP]:
            program.setdefault(HTTP, tables[HTTP].pop("listen"))
        for name, value in flags.items():
            if value is None:
                continue
            if name == CORS_ORIGINS:
                tables[HTTP]["cors_origins"], sources[name] = value, "--cors"
            else:
                program[name], sources[name] = value, f"--{name.replace('_', '-')}"
        for name in program:
            if name not in _PROGRAM:
                raise unknown_setting(name, [*_PROGRAM, *(f"[{table}]" for table in tables)])
        settings = read_settings(ServerSettings, program)
        if served is not None:
            likely = [HTTP, STUDIO, *served]
            _check_tables(unknown_tables, likely, [name for name in likely if tables.get(name)])
            _check_variables(unknown_variables, likely)
        http = tables.pop(HTTP)
        engines = {
            name: str(plain_value(table.pop("engine"), is_path=True))
            for name, table in tables.items()
            if "engine" in table
        }
        for name, value in (
            program | {f"{name}.engine": url for name, url in engines.items()}
        ).items():
            if value == "" and name != "systems":  # an empty list of systems is valid
                raise UsageError("Empty setting: give it a value, or remove it.", setting=name)
        if not tables[STUDIO]:
            del tables[STUDIO]
    return LoadedSettings(
        settings=settings,
        tables=tables,
        engines=engines,
        http=http,
        sources=sources,
        ignored=[*(f"[{name}]" for name in unknown_tables), *unknown_variables],
    )


def _check_tables(unknown: Sequence[str], likely: Sequence[str], present: Sequence[str]) -> None:
    """Reject a table that looks like the misspelled name of another one. Beside the right table,
    only a difference of one letter does: `[recipes-test]` is of another schema, `[recipe]` not."""
    for name in unknown:
        absent = [table for table in likely if table not in present]
        if _alike(name, absent) or any(is_misspelled(name, table) for table in present):
            raise unknown_setting(name, [f"[{table}]" for table in likely])


def _check_variables(unknown: Sequence[str], likely: Sequence[str]) -> None:
    """Reject a variable that looks like a misspelled one, or that no table can have."""
    for variable in unknown:
        name = variable.removeprefix(PREFIX).lower()
        table, _, rest = name.partition("_")
        of_tables = [f"{each}_{rest}" for each in _alike(table, likely)]
        if not rest or is_reserved(table) or of_tables or _alike(name, _PROGRAM):
            known = [*of_tables, *_PROGRAM, "config", *likely]
            raise unknown_setting(variable, [PREFIX + each.upper() for each in known])


def _alike(name: str, known: Sequence[str]) -> list[str]:
    return difflib.get_close_matches(name, known, n=1, cutoff=_ALIKE)


def _names(value: Any) -> Sequence[str]:
    return tuple(value) if isinstance(value, dict) else ()


def named_systems(environment: Mapping[str, str], file: Path | None = None) -> list[str]:
    """Return the systems that KEYHOUSE_SYSTEMS or the settings file names. A file with an error
    names none: who needs its settings reports the error."""
    systems: Any = environment.get(f"{PREFIX}SYSTEMS", "").split(",")
    if systems == [""]:
        named = environment.get(f"{PREFIX}CONFIG")
        try:
            systems = _read_file(file or (Path(named) if named else None)).get("systems")
        except UsageError:
            return []
    if not isinstance(systems, list) or not all(isinstance(each, str) for each in systems):
        return []
    return [each.strip() for each in systems if each.strip()]


def only_system(environment: Mapping[str, str], file: Path | None = None) -> str | None:
    """Return the system of `named_systems`, if it is one."""
    systems = named_systems(environment, file)
    return systems[0] if len(systems) == 1 else None


@contextmanager
def _name_sources(sources: Mapping[str, str]) -> Iterator[None]:
    try:
        yield
    except UsageError as error:
        rejected = str(error.fields.get("setting", "")).partition("[")[0]  # of a list, all of it
        name = next((name for name in (rejected, *error.fields) if name in sources), None)
        if name is not None:
            error.fields["source"] = sources[name]
        raise


def _add_environment(
    program: dict[str, Any],
    tables: dict[str, dict[str, Any]],
    environment: Mapping[str, str],
    sources: dict[str, str],
) -> list[str]:
    """Add the settings in the environment; return the unknown variables."""
    prefixes = {f"{name.replace('-', '_')}_": name for name in tables}
    unknown: list[str] = []
    for variable, value in sorted(environment.items()):
        if (
            not variable.startswith(PREFIX)
            or variable == f"{PREFIX}CONFIG"
            or _IGNORED.match(variable)
        ):
            continue
        name = variable.removeprefix(PREFIX).lower()
        if name in _PROGRAM:
            program[name], sources[name] = value, variable
        elif name == f"{HTTP}_listen":
            program[HTTP], sources[HTTP] = value, variable
        elif prefix := max(filter(name.startswith, prefixes), key=len, default=""):
            table, rest = prefixes[prefix], name.removeprefix(prefix)
            tables[table][rest], sources[f"{table}.{rest}"] = value, variable
        else:
            unknown.append(variable)
    return unknown


def _read_file(file: Path | None) -> dict[str, Any]:
    import tomllib  # commands without settings do not need it

    path, text = file or Path(FILE), ""
    try:
        text = path.read_text(encoding="utf-8")
        return tomllib.loads(text)
    except FileNotFoundError:
        if file is None:
            return {}
        raise UsageError("The settings file does not exist.", file=str(path)) from None
    except tomllib.TOMLDecodeError as error:
        if _HTTP_VALUE.search(text) and _HTTP_TABLE.search(text):
            raise UsageError(
                "`http` is an address and a table: write the address into the table, as `listen`.",
                file=str(path),
                at=str(error),
            ) from None
        raise UsageError(
            "The settings file is not valid TOML.", file=str(path), at=str(error)
        ) from None
    except UnicodeDecodeError as error:
        raise UsageError(
            "The settings file is not UTF-8.", file=str(path), at=f"byte {error.start}"
        ) from None
    except OSError as error:
        raise UsageError(
            "The settings file can't be read.", file=str(path), reason=error.strerror
        ) from None
