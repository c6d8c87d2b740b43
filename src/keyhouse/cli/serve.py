"""`keyhouse serve`: systems as a running service."""

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from keyhouse.cli.options import examples
from keyhouse.cli.target import own, system_names
from keyhouse.systems.registry import NAMES, has_service, load_service


@examples(
    "keyhouse serve",
    "keyhouse serve rosey --nats nats://host:4222 --http off",
    "keyhouse serve --engine postgresql://user@host/database --http 0.0.0.0:8080",
)
def serve(
    systems: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="SYSTEM...",
            help=f"What to serve, of {', '.join(filter(has_service, NAMES))}, or a part of your own as module:NAME; "
            "none named: all there are.",
            autocompletion=system_names,
        ),
    ] = None,
    data: Annotated[
        str | None, typer.Option(metavar="DIR", help="The folder for files. [keyhouse-data]")
    ] = None,
    engine: Annotated[
        str | None,
        typer.Option(
            metavar="URL",
            help="Where rows are kept. [a SQLite file for each system, in the data folder]",
        ),
    ] = None,
    http: Annotated[
        str | None,
        typer.Option(
            metavar="HOST:PORT",
            help="Where HTTP listens; port 0 is any, `off` none. [127.0.0.1:8080]",
        ),
    ] = None,
    nats: Annotated[
        str | None,
        typer.Option(
            metavar="URL",
            help="The NATS to join; `embedded` starts one on loopback, `off` is none. [embedded]",
        ),
    ] = None,
    nats_port: Annotated[
        int | None,
        typer.Option(metavar="N", help="The port of the embedded NATS; 0 is any. [4222]"),
    ] = None,
    config: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="The file of settings. [keyhouse.toml, if it is there]"),
    ] = None,
    json: Annotated[
        bool,
        typer.Option(
            "--json", help="For programs: one line of JSON when it is ready, and the log as JSON."
        ),
    ] = False,
) -> None:
    """Serve systems over NATS and HTTP, until Ctrl-C or SIGTERM.

    With nothing said it needs nothing: rows go into SQLite files, a NATS server of its own starts beside it, and both
    listen on this machine only. When it is ready, one line says where. The log goes to standard error. Beside the systems,
    HTTP has /docs, /health, /ready and /metrics.

    Every option can also be set in the environment (KEYHOUSE_HTTP) or in keyhouse.toml, where there are more of them:
    docs/serving.md has them all.
    """
    flags = {
        "systems": systems or None,
        "data": data,
        "engine": engine,
        "http": http,
        "nats": nats,
        "nats_port": nats_port,
    }
    _serve(flags | {"log_format": "json" if json else None}, config, json)


def _serve(flags: dict[str, Any], config: Path | None, json: bool) -> None:
    try:
        from keyhouse.serve.process import serve, set_up_logs
        from keyhouse.settings.sources import load_settings
    except ModuleNotFoundError as error:
        raise ImportError(f"Serving needs {error.name}: pip install 'keyhouse[serve]'") from error
    import structlog

    mine = [_service_name(name) for name in flags["systems"] or () if ":" in name]
    given = load_settings(flags, os.environ, config, systems=(*NAMES, *mine))
    settings = given.settings
    names = settings.systems or tuple(name for name in NAMES if has_service(name))
    services = {
        _service_name(name): own(name) if ":" in name else load_service(name).build
        for name in names
    }
    with given.name_sources():
        _check_tables(given.tables)
    set_up_logs(settings.log_level, settings.log_format)
    log = structlog.get_logger("keyhouse.serve")
    log.info("starting", process=os.getpid(), **(settings.for_log() | {"data": settings.data}))
    if not settings.systems and len(names) < len(NAMES):
        log.info(
            "left out, because they have no service yet",
            systems=[name for name in NAMES if name not in names],
        )
    with given.name_sources():
        serve(given, services, _announce_json if json else _announce)


def _check_tables(tables: Mapping[str, Mapping[str, Any]]) -> None:
    """Refuse what a system's table can't hold, served or not, before anything is opened. A part of the caller's own looks at
    its settings itself."""
    import msgspec

    from keyhouse.settings import read_settings

    stored = msgspec.defstruct("Stored", [("engine", str | None, None)])
    for name in NAMES:
        if tables[name]:
            read_settings(
                load_service(name).settings if has_service(name) else stored,
                tables[name],
                table=name,
            )


def _service_name(name: str) -> str:
    """A part of the caller's own is called by its module."""
    return name.partition(":")[0].rpartition(".")[2]


def _announce_json(place: Any) -> None:
    import msgspec

    sys.stdout.write(
        msgspec.json.encode({"ready": True, "http": place.http, "nats": place.nats}).decode() + "\n"
    )
    sys.stdout.flush()


def _announce(place: Any) -> None:
    where = [
        f"HTTP {place.http}" if place.http else "no HTTP",
        f"NATS {place.nats}" if place.nats else "no NATS",
    ]
    print(f"keyhouse is ready: {', '.join(where)}. Ctrl-C ends it.", flush=True)
