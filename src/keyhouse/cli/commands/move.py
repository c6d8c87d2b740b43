"""`keyhouse move`: copy a store to another engine, also while programs write, and verify it."""

import asyncio
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from shlex import quote
from typing import Annotated, Any

import typer

from keyhouse import store as stores
from keyhouse.cli.files import create_data_folder, folder_of, require_unlocked
from keyhouse.cli.options import Json, SystemName, examples
from keyhouse.cli.output import Part, Report, number, show
from keyhouse.cli.systems import check_system, served_name
from keyhouse.cli.target import data_folder, engine_at, store_url
from keyhouse.cli.terminal import ProgressLine, interruptible
from keyhouse.engines.url import public_url
from keyhouse.errors import LockedError, UsageError
from keyhouse.settings.engine_urls import make_folder, url_of

_SPACES_SHOWN = 20
_SWITCH = (
    "All rows are copied, and changes are followed."
    " Stop the programs that write to the source, then press Enter."
)

_NOT_FOLLOWED = (
    "A service is running on the data folder: what it writes from now on is not copied."
    " Stop it and run this again, or use --follow."
)


@examples(
    "keyhouse move audiobooks sqlite:books.db postgresql://user@host/books",
    "keyhouse move audiobooks sqlite:books.db rocksdb:books --follow",
    "keyhouse move board:BOARD keyhouse-data postgresql://user@host/board",
    "keyhouse move board:BOARD sqlite:board.db keyhouse-data",
)
def move(
    ctx: typer.Context,
    system: SystemName,
    source: Annotated[
        str,
        typer.Argument(
            metavar="FROM",
            help="URL of the engine that holds the rows: sqlite:a.db; or the data folder of"
            " keyhouse serve.",
        ),
    ],
    target: Annotated[
        str | None,
        typer.Argument(
            metavar="TO",
            help="URL of an engine without rows: rocksdb:b; or a data folder for keyhouse serve.",
        ),
    ] = None,
    follow: Annotated[
        bool,
        typer.Option(
            "--follow",
            help="After copying, follow changes until Enter (or the end of standard input).",
        ),
    ] = False,
    json: Json = False,
) -> None:
    """Copy a store to another engine, and verify the copy.

    Counts and digests are compared at the end. If interrupted, run it again: it resumes. The source
    is only read. `{system}` in a URL is replaced by the name of the system.

    If FROM is the data folder of `keyhouse serve`, TO is the engine that it is served from next, as
    its --engine: the rows get the table or bucket names that the service looks for. If a service
    runs there, stop it first, or use --follow. If TO is a data folder, a service can be started
    there next.
    """
    if target is None:
        ctx.fail("Name the system first: keyhouse move SYSTEM FROM TO.")
    check_system(system)
    served_from, to_folder = data_folder(source) is not None, data_folder(target) is not None
    source_url = store_url(system, source) if served_from else source.replace("{system}", system)
    if to_folder:
        target_url = store_url(system, target)
    elif served_from:
        target_url = url_of(served_name(system), target, alone=True)
        make_folder(target)
    else:
        target_url = target.replace("{system}", system)
    folder = data_folder(target)
    with interruptible("The move is incomplete. Run the same command again: it resumes."):
        moved = asyncio.run(_move(source_url, target_url, folder, follow=follow))
    spaces = [(space.space, number(space.rows, "row"), space.digest[:16]) for space in moved.spaces]
    what = f"{number(moved.rows, 'row')} of {number(len(moved.spaces), 'space')}"
    text = f"{what}, identical in both; {moved.written:,} written."
    if to_folder:
        text += f" Now serve it: keyhouse serve {system} --data {target}"
    elif served_from:
        text += f" Now serve it: keyhouse serve {system} --engine {quote(without_password(target))}"
    if source_url.startswith(("nats:", "tls:")) and served_from and not follow:
        text += f"\n{_NOT_FOLLOWED}"
    parts = [Part("Spaces and their digests", spaces, _SPACES_SHOWN)]
    show(moved, lambda _: Report("Moved", text, parts), json=json)


def without_password(url: str) -> str:
    """Return the URL as it was given, with PASSWORD in place of the password."""
    credentials, at, _ = url.partition("//")[2].rpartition("@")
    if not at or url == public_url(url):
        return public_url(url)
    user, _, password = credentials.partition(":")
    return public_url(url).replace("//", f"//{user}{':PASSWORD' if password else ''}@", 1)


@contextmanager
def _no_service(source: str, target: str, *, follow: bool) -> Iterator[None]:
    """Keep services off both stores; with `follow`, one may write to the source."""
    with ExitStack() as locks:
        if not follow:
            try:
                locks.enter_context(require_unlocked(source))
            except LockedError as error:
                raise LockedError(_NOT_FOLLOWED, **error.fields) from None
        if folder_of(target) != folder_of(source):
            locks.enter_context(require_unlocked(target))
        yield


async def _move(source: str, target: str, folder: Path | None, *, follow: bool) -> Any:
    """Move between two URLs. `folder` is the data folder of the target, if it was named."""
    if source == target:
        raise UsageError("FROM and TO are the same engine.", url=public_url(source))
    switch = _switch() if follow else None
    phase = ""
    with ProgressLine() as line:

        def report(progress: stores.MoveProgress) -> None:
            nonlocal phase
            if phase != "following" == progress.phase:
                line.print(_SWITCH)
            phase = progress.phase
            rows = f"{number(progress.rows, 'row')}, {progress.written:,} written"
            line.update(f"{progress.phase} {progress.space}: {rows}")

        with _no_service(source, target, follow=follow):
            async with engine_at(source, existing=True) as one:
                if folder is not None:
                    create_data_folder(folder)
                async with engine_at(target) as other:
                    return await stores.move(
                        one, other, name=public_url(source), switch=switch, on_progress=report
                    )


def _switch() -> asyncio.Event:
    """Return an event that is set by a line on standard input. Its thread does not keep the process
    alive."""
    switch, loop = asyncio.Event(), asyncio.get_running_loop()

    def wait() -> None:
        sys.stdin.readline()
        loop.call_soon_threadsafe(switch.set)

    threading.Thread(target=wait, daemon=True).start()
    return switch
