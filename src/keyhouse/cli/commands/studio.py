"""`keyhouse studio`: the Studio over one store, without a running service."""

import asyncio
import tempfile
from pathlib import Path
from typing import Annotated, Any

import typer

from keyhouse.advice import install_line
from keyhouse.cli.options import StoreName, SystemName, examples
from keyhouse.cli.systems import load_system
from keyhouse.cli.target import engine_at, store_url
from keyhouse.engines.url import public_url


@examples(
    "keyhouse studio rosey --store sqlite:bot.db",
    "keyhouse studio recipes:BOX --store sqlite:recipes.db --write",
)
def studio(
    system: SystemName,
    store: StoreName = None,
    write: Annotated[
        bool, typer.Option("--write", help="Allow changes, once they are unlocked on the page.")
    ] = False,
    port: Annotated[
        int,
        typer.Option(
            metavar="N", min=0, max=65_535, help="Port on this machine; 0 picks a free port."
        ),
    ] = 0,
) -> None:
    """Open a store in a browser, until Ctrl-C.

    Prints a link that signs in once: open it, and press Sign in. The page listens on this machine
    only, and is read-only without --write. An embedded engine such as RocksDB cannot be open
    elsewhere at the same time.
    """
    try:
        from keyhouse.serve.listener import bind
    except ModuleNotFoundError as error:
        raise ImportError(f"The Studio needs {error.name}: {install_line('serve')}") from error
    from keyhouse.settings.settings import Address

    url = store_url(system, store)
    with (
        bind(Address("127.0.0.1", port), option="--port") as bound,
        tempfile.TemporaryDirectory() as folder,
    ):
        asyncio.run(_serve(load_system(system), url, bound, Path(folder), write))


async def _serve(system: Any, url: str, bound: Any, folder: Path, write: bool) -> None:
    from keyhouse import open_engine
    from keyhouse.http import make_app
    from keyhouse.serve.listener import listening
    from keyhouse.service.spec import Keyspace
    from keyhouse.studio import (
        SCOPES,
        Studio,
        StudioSettings,
        StudioSystem,
        SystemCatalog,
    )

    async with engine_at(url, existing=True) as engine:
        served = StudioSystem(
            name=system.name,
            title=system.title,
            about=system.doc,
            engine=public_url(url),
            keyspaces=[Keyspace(schema=schema, engine=engine) for schema in system.schemas],
        )
        own = await open_engine("memory:")
        opened = Studio(SystemCatalog([served]), own, folder, StudioSettings(), takes_tokens=False)
        app = make_app([opened.spec()])
        jobs = [asyncio.ensure_future(task()) for task in opened.spec().tasks]
        try:
            async with listening(
                app,
                bound,
                drain_seconds=1,
                reject=app.reject,
                stopping=app.end_streams,
                option="--port",
            ) as address:
                link = await opened.sessions.new_link(SCOPES if write else SCOPES[:1])
                print(f"{address.url}/studio/login?link={link}", flush=True)
                await asyncio.Event().wait()
        finally:
            for job in jobs:
                job.cancel()
            await asyncio.gather(*jobs, return_exceptions=True)
            await own.close()
