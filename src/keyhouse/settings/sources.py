"""Where settings come from: flags, then the environment, then `keyhouse.toml`. The first that has a value decides.

`KEYHOUSE_NATS_PORT` is `nats_port`; `KEYHOUSE_ROSEY_SWEEP_SECONDS` is `sweep_seconds` in the table `[rosey]`, and so for the
table `[http]` of the HTTP face. A variable or a name that means nothing is refused: a misspelled limit that is silently not
there is worse than a service that does not start.
"""

import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import msgspec

from keyhouse.errors import UsageError
from keyhouse.settings.parser import read_settings, unknown_setting
from keyhouse.settings.settings import Settings

__all__ = ["LoadedSettings", "load_settings"]

FILE: Final = "keyhouse.toml"
PREFIX: Final = "KEYHOUSE_"
HTTP: Final = "http"
"""Where HTTP listens, and the table of its face, which can say that too: `listen`."""

_OWN: Final = tuple(field.name for field in msgspec.structs.fields(Settings))

_NOT_OURS = re.compile(
    r"KEYHOUSE_(SERVICE(_|$)|PORT(_|$)|ENGINES$|FOLDER$|SEED$|SOAK$|SPACE$|STORE$|TOKEN$|URL$)"
)
"""What an orchestrator puts there for a service called keyhouse, and what other commands and the tests read."""


class LoadedSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The program's settings; for each system its table, not yet read, and its engine if it has one of its own; the table
    of the HTTP face; and of each setting that was given, where: a flag, a variable or a file."""

    settings: Settings
    tables: Mapping[str, Mapping[str, Any]]
    engines: Mapping[str, str]
    http: Mapping[str, Any]
    origins: Mapping[str, str] = {}

    @contextmanager
    def telling(self) -> Iterator[None]:
        """Within it, what refuses a setting says where that comes from."""
        with _telling(self.origins):
            yield


def load_settings(
    flags: Mapping[str, Any],
    environment: Mapping[str, str],
    file: Path | None,
    *,
    systems: Sequence[str],
) -> LoadedSettings:
    """`systems` are those that can have a table; `file` is one that was asked for, and so must be there, or `None` for
    `keyhouse.toml` here, if there is one."""
    own: dict[str, Any] = {}
    tables: dict[str, dict[str, Any]] = {name: {} for name in (HTTP, *systems)}
    asked = environment.get(f"{PREFIX}CONFIG")
    path = file or (Path(asked) if asked else None)
    origins: dict[str, str] = {}
    with _telling(origins):
        for name, value in _read_file(path).items():
            origins |= dict.fromkeys(
                [name, *(f"{name}.{each}" for each in _names(value))], str(path or FILE)
            )
            if name not in tables or (name == HTTP and not isinstance(value, dict)):
                own[name] = value
            elif isinstance(value, dict):
                tables[name] |= value
            else:
                raise UsageError(
                    "These settings are a table of the file: write its name in [ ] above them.",
                    setting=name,
                )
        _lay_over(own, tables, environment, origins)
        if "listen" in tables[HTTP]:
            own.setdefault(HTTP, tables[HTTP].pop("listen"))
        for name, value in flags.items():
            if value is not None:
                own[name], origins[name] = value, f"--{name.replace('_', '-')}"
        for name in own:
            if name not in _OWN:
                raise unknown_setting(name, [*_OWN, *(f"[{table}]" for table in tables)])
        http = tables.pop(HTTP)
        engines = {
            name: str(table.pop("engine")) for name, table in tables.items() if "engine" in table
        }
        for name, value in (own | {f"{name}.engine": url for name, url in engines.items()}).items():
            if value == "" and name != "systems":  # of which none are all
                raise UsageError(
                    "A setting is empty: give it a value, or take it out.", setting=name
                )
        settings = read_settings(Settings, own)
    return LoadedSettings(
        settings=settings, tables=tables, engines=engines, http=http, origins=origins
    )


def _names(value: Any) -> Sequence[str]:
    return tuple(value) if isinstance(value, dict) else ()


@contextmanager
def _telling(origins: Mapping[str, str]) -> Iterator[None]:
    try:
        yield
    except UsageError as error:
        refused = str(error.fields.get("setting", "")).partition("[")[0]  # of a list, the whole
        found = next((name for name in (refused, *error.fields) if name in origins), None)
        if found is not None:
            error.fields["source"] = origins[found]
        raise


def _lay_over(
    own: dict[str, Any],
    tables: dict[str, dict[str, Any]],
    environment: Mapping[str, str],
    origins: dict[str, str],
) -> None:
    for variable, value in sorted(environment.items()):
        if (
            not variable.startswith(PREFIX)
            or variable == f"{PREFIX}CONFIG"
            or _NOT_OURS.match(variable)
        ):
            continue
        name = variable.removeprefix(PREFIX).lower()
        table, _, rest = name.partition("_")
        if name in _OWN:
            own[name], origins[name] = value, variable
        elif name == f"{HTTP}_listen":
            own[HTTP], origins[HTTP] = value, variable
        elif table in tables and rest:
            tables[table][rest], origins[f"{table}.{rest}"] = value, variable
        else:
            raise unknown_setting(
                variable, [PREFIX + each.upper() for each in (*_OWN, "config", *tables)]
            )


def _read_file(file: Path | None) -> dict[str, Any]:
    path = file or Path(FILE)
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        if file is None:
            return {}
        raise UsageError("There is no such file of settings.", file=str(path)) from None
    except tomllib.TOMLDecodeError as error:
        raise UsageError(
            "The file of settings is not TOML: mend it there.", file=str(path), at=str(error)
        ) from None
    except UnicodeDecodeError as error:
        raise UsageError(
            "The file of settings is not UTF-8.", file=str(path), at=f"byte {error.start}"
        ) from None
    except OSError as error:
        raise UsageError(
            "The file of settings can't be read.", file=str(path), reason=error.strerror
        ) from None
