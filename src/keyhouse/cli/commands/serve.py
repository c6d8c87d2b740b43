"""`keyhouse serve` and `keyhouse restart`: run systems as a service, and replace its workers."""

import os
import signal
import sys
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from keyhouse.advice import install_line, systems_line
from keyhouse.cli.options import ConfigFile, Json, complete_system, examples
from keyhouse.cli.output import show
from keyhouse.cli.systems import find_modules_beside, load_object, own_system, schemas_beside
from keyhouse.errors import UnavailableError, UsageError
from keyhouse.schema import Operation, Schema
from keyhouse.service.registry import has_service, load_service, system_names
from keyhouse.service.system import System
from keyhouse.settings import read_settings
from keyhouse.settings.engine_urls import is_own_nats
from keyhouse.settings.settings import OFF
from keyhouse.settings.sources import (
    CORS_ORIGINS,
    STUDIO,
    LoadedSettings,
    is_reserved,
    load_settings,
)

RESTART_POLL_SECONDS: Final = 0.1


@examples(
    "keyhouse serve",
    "keyhouse serve recipes:BOX",
    "keyhouse serve songs:SONGS --pages overlay",
    "keyhouse serve rosey --nats nats://host:4222 --http off",
    "keyhouse serve --workers auto",
    "keyhouse serve --engine postgresql://user@host/database --http 0.0.0.0:8080",
)
def serve(
    systems: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="SYSTEM...",
            help=f"The systems to serve: {', '.join(filter(has_service, system_names()))}, or"
            " your own schema or service as module:NAME. Default: all.",
            autocompletion=complete_system,
        ),
    ] = None,
    data: Annotated[
        str | None, typer.Option(metavar="DIR", help="The data folder. [keyhouse-data]")
    ] = None,
    engine: Annotated[
        str | None,
        typer.Option(
            metavar="URL",
            help="URL of the engine for the rows. [one SQLite file per system in the data folder]",
        ),
    ] = None,
    http: Annotated[
        str | None,
        typer.Option(
            metavar="HOST:PORT",
            help="HTTP listen address; port 0 picks a free port, `off` disables HTTP."
            " [127.0.0.1:8080]",
        ),
    ] = None,
    pages: Annotated[
        str | None,
        typer.Option(
            metavar="DIR", help="A folder of your own pages, which everybody can read at /pages/."
        ),
    ] = None,
    cors: Annotated[
        list[str] | None,
        typer.Option(
            metavar="ORIGIN",
            help="A site whose pages may call from a browser, such as https://panel.example, or *;"
            " repeatable.",
        ),
    ] = None,
    nats: Annotated[
        str | None,
        typer.Option(
            metavar="URL",
            help="URL of the NATS servers; `embedded` starts one on loopback, `off` disables NATS."
            " [embedded]",
        ),
    ] = None,
    nats_port: Annotated[
        int | None,
        typer.Option(
            metavar="N", help="Port of the embedded NATS server; 0 picks a free port. [4222]"
        ),
    ] = None,
    workers: Annotated[
        str | None,
        typer.Option(
            metavar="N",
            help="Processes that serve, to use several cores; `auto`: one for each. [1]",
        ),
    ] = None,
    config: ConfigFile = None,
    json: Annotated[
        bool,
        typer.Option("--json", help="Print one line of JSON when ready, and log as JSON."),
    ] = False,
) -> None:
    """Serve systems over NATS and HTTP, until Ctrl-C or SIGTERM.

    Without options: rows are stored in SQLite files, an embedded NATS server is started, and both
    listen only on this machine. When it is ready, it prints one line with the addresses. The log
    goes to standard error. HTTP also has /docs, /health, /ready and /metrics.

    Every option can also be set in the environment (KEYHOUSE_HTTP) or in keyhouse.toml;
    the page `Serving` of the documentation lists all settings.
    """
    flags = {
        "systems": systems or None,
        "data": data,
        "engine": engine,
        "http": http,
        "pages": pages,
        CORS_ORIGINS: cors or None,
        "nats": nats,
        "nats_port": nats_port,
        "workers": workers,
    }
    _serve(flags | {"log_format": "json" if json else None}, config, json)


@examples("keyhouse restart", "keyhouse restart --data /var/lib/keyhouse")
def restart(
    data: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="The data folder of keyhouse serve. [keyhouse-data]"),
    ] = None,
    json: Json = False,
) -> None:
    """Replace the workers of a running keyhouse serve.

    They are replaced one after the other: a new worker serves before the former one finishes
    its requests and ends, so that no request fails. The workers run the version and the
    settings with which keyhouse serve was started: to change these, stop it and start it again.
    Exits with 1 if a new worker does not start; the former ones continue.
    """
    from keyhouse.cli.target import serve_settings
    from keyhouse.serve.data_dir import holder_of

    folder = Path(serve_settings(data=data).settings.data)
    former = current = holder_of(folder)
    if former.workers < 2:
        raise UsageError(
            "This keyhouse serve has one process, which cannot be replaced without a pause: stop it"
            " and start it again, with --workers 2 for the next time.",
            data=str(folder),
        )
    try:
        os.kill(former.process, signal.SIGHUP)
    except PermissionError:
        raise UsageError(
            "The process belongs to another user: run this as that one.", process=former.process
        ) from None
    while (current.restarts, current.failed) == (former.restarts, former.failed):
        time.sleep(RESTART_POLL_SECONDS)
        current = holder_of(folder)
    if current.failed != former.failed:
        raise UnavailableError("A new worker did not start; the former ones continue: see the log.")
    show(
        {"restarted": current.workers},
        lambda _: f"{current.workers} workers are restarted.",
        json=json,
    )


def _serve(flags: dict[str, Any], config: Path | None, json: bool) -> None:
    try:
        import structlog

        from keyhouse.serve.process import serve, set_up_logs
    except ModuleNotFoundError as error:
        raise ImportError(f"Serving needs {error.name}: {install_line('serve')}") from error

    named = load_settings(flags, os.environ, config, systems=system_names()).settings.systems
    find_modules_beside(config)
    own = _load_own(named)
    served = [*own, *(name for name in named or system_names() if ":" not in name)]
    loaded = load_settings(
        flags, os.environ, config, systems=(*system_names(), *own), served=served
    )
    settings = loaded.settings
    names = settings.systems or tuple(
        name for name in system_names() if has_service(name) and _can_store(name, loaded)
    )
    if not names:
        raise typer.BadParameter(
            "no system is installed: serve your own schema, as in `keyhouse serve board:BOARD`, or"
            f" install those of Keyhouse: {systems_line()}."
        )
    services = {name: load_service(name) for name in names if ":" not in name} | own
    with loaded.name_sources():
        _check_tables(loaded.tables, own)
    set_up_logs(settings.log_level, settings.log_format)
    log = structlog.get_logger("keyhouse.serve")
    log.info("starting", process=os.getpid(), **(settings.for_log() | {"data": settings.data}))
    if not settings.systems and len(names) < len(system_names()):
        without = [name for name in system_names() if name not in names]
        log.info("not served: their rows are on the NATS server, which is off", systems=without)
    if loaded.ignored:
        log.warning("settings of systems that are not served here", ignored=[*loaded.ignored])
    if unused := _unused_databases(own, loaded):
        log.warning(
            "a schema starts without rows, beside databases that no served system uses: to continue"
            " with the rows of a schema that was renamed, keyhouse move them",
            systems=[*own],
            databases=unused,
        )
    with loaded.name_sources():
        serve(loaded, services, _announce_json if json else announce)


def _load_own(names: Iterable[str]) -> dict[str, Any]:
    """Load the caller's own systems, schemas and services, each `module:NAME`, by the name they
    have here.

    A system and a schema have their own names, a service function that of its module.
    """
    from keyhouse.service.schema_service.service import check_name, schema_service
    from keyhouse.service.spec import Service

    own: dict[str, Any] = {}
    for name in names:
        if ":" not in name:
            continue
        loaded: Any = load_object(name)
        named = _service_name(name)
        if isinstance(loaded, System):
            named, loaded = loaded.name, own_system(loaded).service
        elif isinstance(loaded, Schema):
            _check_listed(name)
            named, loaded = check_name(loaded), schema_service(loaded, named=name)
        elif not isinstance(loaded, Service) and (not callable(loaded) or isinstance(loaded, type)):
            raise typer.BadParameter(
                f"{name!r} is neither a Schema nor a System nor a service but a"
                f" {type(loaded).__name__}.{schemas_beside(name)}"
            )
        if named in own or named in system_names():
            raise typer.BadParameter(
                f"{name!r} has the name of another system: {named}."
                f" To serve the installed one: keyhouse serve {named}."
            )
        if is_reserved(named):
            raise typer.BadParameter(
                f"{name!r} has the name of a setting of keyhouse serve: {named}."
            )
        own[named] = loaded
    return own


def _check_listed(name: str) -> None:
    """Exit with 2 if the module of a schema declares an operation that no schema of it lists."""
    members = vars(sys.modules[name.partition(":")[0]])
    schemas = [each for each in members.values() if isinstance(each, Schema)]
    listed = [each for schema in schemas for each in schema.operations]
    for function, found in members.items():
        if isinstance(found, Operation) and not any(found is each for each in listed):
            raise typer.BadParameter(
                f"{function!r} is an operation that no schema lists: write"
                f" operations=[{function}] in the Schema."
            )


def _can_store(name: str, loaded: LoadedSettings) -> bool:
    """Return whether the rows of a system have a place: not on a NATS server that is off."""
    return loaded.settings.nats != OFF or not is_own_nats(loaded.engine_url(name, alone=False))


def _unused_databases(own: Iterable[str], loaded: LoadedSettings) -> list[str]:
    """Return the databases of the data folder that belong to no known system, if a schema of the
    caller's own has no file yet: it may have been renamed."""
    folder = Path(loaded.settings.data)
    in_folder = () if loaded.settings.engine else set(own) - set(loaded.engines)
    if all((folder / f"{name}.db").exists() for name in in_folder):
        return []
    return sorted(
        file.name
        for file in folder.glob("*.db")
        if file.stem not in (*system_names(), *own, STUDIO)
    )


def _check_tables(tables: Mapping[str, Mapping[str, Any]], own: Mapping[str, Any]) -> None:
    """Reject invalid settings of the Studio and of every system, served or not, before anything is
    opened.

    A service function of the caller's own checks its settings itself.
    """
    import msgspec

    from keyhouse.service.spec import Service
    from keyhouse.studio import StudioSettings

    read_settings(StudioSettings, tables.get(STUDIO, {}), table=STUDIO)
    no_settings = msgspec.defstruct("NoSettings", [("engine", str | None, None)])
    for name, service in own.items():
        if isinstance(service, Service):
            read_settings(service.settings, tables[name], table=name)
    for name in system_names():
        if tables[name]:
            kind = load_service(name).settings if has_service(name) else no_settings
            read_settings(kind, tables[name], table=name)


def _service_name(name: str) -> str:
    """Return the name of a system; a service of the caller's own has the name of its module."""
    return name.partition(":")[0].rpartition(".")[2]


def _announce_json(addresses: Any) -> None:
    import msgspec

    ready = {"ready": True, "http": addresses.http, "nats": addresses.nats}
    sys.stdout.write(msgspec.json.encode(ready).decode() + "\n")
    sys.stdout.flush()


def announce(addresses: Any) -> None:
    where = [
        f"HTTP {addresses.http}" if addresses.http else "no HTTP",
        f"NATS {addresses.nats}" if addresses.nats else "no NATS",
    ]
    print(f"keyhouse is ready: {', '.join(where)}. Ctrl-C stops it.", flush=True)
    if addresses.pages:
        print(f"Your pages: {addresses.pages}", flush=True)
    if addresses.studio and sys.stdout.isatty():
        print(f"Studio: open {addresses.studio} and press Sign in; it works once.", flush=True)
