"""`keyhouse playlist`: refresh the catalog, admins and the blessed, sign in, and a demonstration
without CyTube."""

import asyncio
import logging
import os
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, redirect_stdout, suppress
from pathlib import Path
from typing import Annotated, Any, Final, Literal

import typer

from keyhouse.cli.options import Json, examples
from keyhouse.cli.output import number, show_json
from keyhouse.cli.target import data_folder, engine_at, find_service_url, serve_settings, store_url
from keyhouse.cli.terminal import ProgressLine
from keyhouse.errors import UsageError

NAME = "playlist"
_SERVICE: Final = "http://127.0.0.1:8080"

StoreName = Annotated[
    str | None,
    typer.Option(
        "--store",
        "-s",
        metavar="STORE",
        help="The data folder of keyhouse serve, or its NATS server, nats://host:4222."
        " Default: that of the settings. [KEYHOUSE_STORE]",
    ),
]
Namespace = Annotated[
    str | None,
    typer.Option(
        "--namespace",
        metavar="NAME",
        help="The namespace of the keys. Default: that of the settings.",
    ),
]
UserName = Annotated[str, typer.Argument(metavar="NAME", help="A user of the channel.")]

app = typer.Typer(no_args_is_help=True, rich_markup_mode=None)


@app.callback()
def playlist() -> None:
    """The catalog, admins and the blessed, and a demonstration."""


@app.command()
@examples(
    "keyhouse playlist refresh --file catalog.json",
    "keyhouse playlist refresh --store nats://127.0.0.1:4222 --as Ada",
)
def refresh(
    file: Annotated[
        Path | None,
        typer.Option("--file", metavar="FILE", help="A JSON array of items, or CSV."),
    ] = None,
    requested_by: Annotated[
        str | None,
        typer.Option(
            "--as", metavar="NAME", help="Name of an admin, for a service at a NATS server."
        ),
    ] = None,
    allow_empty: Annotated[
        bool, typer.Option("--allow-empty", help="Publish a catalog without items, too.")
    ] = False,
    namespace: Namespace = None,
    store: StoreName = None,
    json: Json = False,
) -> None:
    """Read the catalog again, from a file or from MediaCMS, and publish it.

    With a data folder, its catalog is built here, and its service shows it at once. With a NATS
    server, the service is asked to, and a file must be on its machine. Ends when it is published. A
    failure changes nothing.
    """
    if (server := _server(store)) is not None:
        done = asyncio.run(_ask_for_refresh(server, file, requested_by, allow_empty))
    else:
        done = asyncio.run(_refresh(file, namespace, _folder(store), allow_empty))
    if json:
        show_json(done)
    else:
        print(f"{number(done['item_count'], 'item')} published as {done['snapshot_id']}.")


async def _refresh(
    file: Path | None, namespace: str | None, folder: Path, allow_empty: bool
) -> dict[str, Any]:
    from keyhouse_playlist.catalog.access import CATALOG_FILE
    from keyhouse_playlist.catalog.mediacms import MediaCms
    from keyhouse_playlist.catalog.refresh import CatalogSource, FileSource, Refresh
    from keyhouse_playlist.catalog.tables import MediaCatalog
    from keyhouse_playlist.stores import PlaylistStores

    async with _opened(folder) as (engine, run):
        stores = PlaylistStores(engine, _setting("namespace", namespace))
        source: CatalogSource | None = None
        if file is not None:
            source = FileSource(file, run)
        elif url := _setting("mediacms_url"):
            source = MediaCms(url, _setting("mediacms_token"))
        runner = Refresh(MediaCatalog(folder / CATALOG_FILE), stores, run, source)
        with ProgressLine() as line:

            def show(done: int, total: int | None) -> None:
                of = "" if total is None else f" of {total:,}"
                line.update(f"{done:,}{of} items")

            snapshot = await runner.refresh(progress=show, allow_empty=allow_empty)
    return {"snapshot_id": snapshot.snapshot_id, "item_count": snapshot.item_count}


async def _ask_for_refresh(
    server: str, file: Path | None, requested_by: str | None, allow_empty: bool
) -> dict[str, Any]:
    if requested_by is None:
        raise UsageError("A service at a NATS server needs the name of an admin: --as NAME.")
    body: dict[str, Any] = {"requested_by": requested_by, "allow_empty": allow_empty}
    if file is not None:
        body["file"] = str(file.absolute())
    return await _command(server, "catalog_refresh", body)


async def _command(server: str, name: str, body: dict[str, Any]) -> dict[str, Any]:
    import msgspec
    import structlog

    from keyhouse.nats.bus import Bus
    from keyhouse.nats.connection import connect
    from keyhouse.nats.embedded_users import BUCKETS_USER, with_embedded_user
    from keyhouse_playlist.limits import MEDIACMS_SECONDS_MAX

    structlog.configure(
        wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
    )
    async with connect(with_embedded_user(server, _folder(None), BUCKETS_USER)) as client:
        reply = await Bus(client).request(
            f"kryten.playlist.cmd.{name}",
            msgspec.json.encode(body),
            timeout_seconds=MEDIACMS_SECONDS_MAX + 60,
        )
    answer: dict[str, Any] = msgspec.json.decode(reply)
    if answer.get("status") != "ok":
        error = answer.get("error", {})
        raise UsageError(
            f"The service rejected the command: {error.get('message')}", code=error.get("code")
        )
    return answer


def _add_role(
    role: Literal["admins", "blessed"],
    group: str,
    about: str,
    *,
    user: str,
    helps: tuple[str, str, str],
) -> None:
    """Add the commands `add`, `remove` and `list` of a role; `helps` are their texts."""

    def add(
        name: UserName,
        namespace: Namespace = None,
        store: StoreName = None,
        json: Json = False,
    ) -> None:
        name = _checked_username(name)
        work = _with_roles(role, namespace, store, lambda roles, of: roles.add(of, name))
        _show_names(role, asyncio.run(work), json=json)

    def remove(
        name: UserName,
        namespace: Namespace = None,
        store: StoreName = None,
        json: Json = False,
    ) -> None:
        work = _with_roles(role, namespace, store, lambda roles, of: roles.remove(of, name))
        _show_names(role, asyncio.run(work), json=json)

    def list_(
        namespace: Namespace = None,
        store: StoreName = None,
        json: Json = False,
    ) -> None:
        work = _with_roles(role, namespace, store, lambda roles, of: roles.names(of))
        _show_names(role, asyncio.run(work), json=json)

    commands = typer.Typer(no_args_is_help=True, rich_markup_mode=None)
    commands.callback(help=about)(lambda: None)
    functions: tuple[Callable[..., None], ...] = (add, remove, list_)
    usages = (f"add {user}", f"remove {user}", "list")
    for command, usage, text in zip(functions, usages, helps, strict=True):
        command.__doc__ = text
        shown = examples(f"keyhouse playlist {group} {usage}")(command)
        commands.command(usage.split()[0])(shown)
    app.add_typer(commands, name=group)


_add_role(
    "admins",
    "admin",
    "Add, remove and list admins, who may do everything.",
    user="Ada",
    helps=(
        "Make a user an admin. The service need not be restarted.",
        "Revoke the admin role of a user; the setting `admins` still applies.",
        "List the admins in the store; there may be others in the setting `admins`.",
    ),
)
_add_role(
    "blessed",
    "blessed",
    "Add, remove and list the blessed, who may save playlists and push them to the channel.",
    user="Bob",
    helps=(
        "Bless a user, who may then save playlists and push them.",
        "Revoke a user's blessing.",
        "List the blessed.",
    ),
)


async def _with_roles(
    role: Literal["admins", "blessed"],
    namespace: str | None,
    store: str | None,
    work: Callable[[Any, Any], Awaitable[list[str]]],
) -> list[str]:
    """Return what `work` does with the roles in the store and the record of this one: its users."""
    from keyhouse_playlist.accounts.roles import Roles
    from keyhouse_playlist.schema import ADMINS, BLESSED
    from keyhouse_playlist.stores import PlaylistStores

    server = _server(store)
    url = store_url(NAME, store) if server is None else f"{server}/?prefix="
    async with engine_at(url) as engine:
        roles = Roles(PlaylistStores(engine, _setting("namespace", namespace)))
        return await work(roles, ADMINS if role == "admins" else BLESSED)


def _show_names(role: str, names: list[str], *, json: bool) -> None:
    if json:
        show_json({role: names})
    else:
        print(f"{role.capitalize()}: {', '.join(names) or 'nobody'}.")


@app.command()
@examples("keyhouse playlist demo")
def demo(
    seconds: Annotated[
        float, typer.Option(metavar="N", help="How long each item plays.", min=1)
    ] = 30.0,
    channel: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="The service's channel. Default: that of the settings."),
    ] = None,
    namespace: Namespace = None,
    store: StoreName = None,
) -> None:
    """Fill the catalog and play a channel's robot, until interrupted.

    For a service that runs with this data folder: everything on its page works without CyTube. The
    codes that the robot would send as private messages are printed.
    """
    with suppress(KeyboardInterrupt):
        namespace, channel = _setting("namespace", namespace), _setting("channel", channel)
        asyncio.run(_demo(_folder(store), namespace, channel, seconds))


async def _demo(folder: Path, namespace: str, channel: str, seconds: float) -> None:
    from keyhouse_playlist.catalog.access import CATALOG_FILE
    from keyhouse_playlist.catalog.refresh import Refresh
    from keyhouse_playlist.catalog.tables import MediaCatalog
    from keyhouse_playlist.demo.catalog import DemoSource
    from keyhouse_playlist.demo.playlists import make_playlists, prepare_robot
    from keyhouse_playlist.demo.robot import DemoRobot
    from keyhouse_playlist.stores import PlaylistStores

    async with _opened(folder) as (engine, run):
        stores = PlaylistStores(engine, namespace)
        runner = Refresh(MediaCatalog(folder / CATALOG_FILE), stores, run, DemoSource())
        await runner.refresh()
        await make_playlists(stores)
    server = store_url(NAME, str(folder)).partition("/?")[0]
    async with DemoRobot(server, channel) as robot:
        robot.on_message = _show_message
        await prepare_robot(robot)
        print(f"{number(len(robot.titles), 'item')} in the catalog; the robot of {channel} runs.")
        if (address := serve_settings(NAME).settings.http_address) is not None:
            print(f"Open {address.url}/{NAME}/ (the address of keyhouse serve, if it has another).")
        print("Stop it with Ctrl-C.", flush=True)
        await robot.run(seconds)


def _show_message(to: str, text: str) -> None:
    print(f"Private message to {to}: {text}", flush=True)


@app.command("sign-in")
@examples("keyhouse playlist sign-in Ada --store http://127.0.0.1:8080")
def sign_in(
    name: UserName,
    store: Annotated[
        str | None,
        typer.Option(
            "--store",
            "-s",
            metavar="URL",
            help=f"The service. Default: {_SERVICE} [KEYHOUSE_STORE]",
        ),
    ] = None,
    json: Json = False,
) -> None:
    """Have a code sent, ask for it, and print the token of a new session.

    The token is for programs and for the data commands: KEYHOUSE_TOKEN sets it there. It is valid
    for `session_hours` of the service.
    """
    from keyhouse.advice import service_url
    from keyhouse.service.http_client import translated
    from keyhouse_playlist.client import PlaylistClient

    url = service_url(find_service_url(store) or _SERVICE, "/playlist")
    with translated():
        request = PlaylistClient.request_code(url, name)
        with redirect_stdout(sys.stderr):  # `err=True` writes a part of the prompt to stdout
            code = typer.prompt("Code")
        with PlaylistClient.sign_in(url, name, code, request=request) as playlists:
            token, session = playlists.token, playlists.session()
    if json:
        show_json({"token": token, "role": session.role, "expires_at": session.expires_at})
    else:
        print(token)


def _setting(name: str, option: str | None = None) -> Any:
    """Return a setting: the option, or as `serve` reads it here."""
    from keyhouse.settings import read_settings
    from keyhouse_playlist.settings import PlaylistSettings

    loaded = serve_settings(NAME)
    given = {} if option is None else {name: option}
    table = {**loaded.tables[NAME], **given}
    return getattr(read_settings(PlaylistSettings, table, table=NAME), name)


def _server(store: str | None) -> str | None:
    """Return the NATS server of the option or the environment; None for the embedded one."""
    url = find_service_url(store)
    if url is None and data_folder(store) is None:
        url = os.environ.get("KEYHOUSE_NATS")
    return None if url in ("", "embedded", "off") else url


def _checked_username(name: str) -> str:
    import msgspec

    from keyhouse_playlist.limits import USERNAME_CHARS_MAX
    from keyhouse_playlist.messages import Username
    from keyhouse_playlist.names import checked_username

    try:
        return checked_username(msgspec.convert(name, Username))
    except ValueError:
        raise UsageError(
            f"The name of a user has 1 to {USERNAME_CHARS_MAX} visible characters, and no control"
            " characters.",
            name=name,
        ) from None


def _folder(store: str | None) -> Path:
    """Return the data folder of `serve`: of the option, the environment or `keyhouse.toml`."""
    return data_folder(store) or Path(serve_settings(NAME).settings.data)


@asynccontextmanager
async def _opened(folder: Path) -> AsyncIterator[tuple[Any, Any]]:
    """Open the store of a data folder, and threads for the catalog's file."""
    from keyhouse.service.blocking import BlockingPool

    pool = BlockingPool()
    async with engine_at(store_url(NAME, str(folder))) as engine:
        try:
            yield engine, pool.run
        finally:
            await pool.close()
