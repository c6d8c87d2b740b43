"""`keyhouse rosey`: what the operator of plugin storage needs besides."""

import os
from pathlib import Path
from typing import Annotated, Any

import typer

from keyhouse.cli.options import Json, examples

rosey = typer.Typer(help="Plugin storage over NATS.", no_args_is_help=True, rich_markup_mode=None)


@rosey.callback()
def _group() -> None:
    """Plugin storage over NATS."""


@rosey.command()
@examples(
    "keyhouse rosey acl trivia quote-db > authorization.conf",
)
def acl(
    plugins: Annotated[
        list[str],
        typer.Argument(
            metavar="PLUGIN...", help="The plugins' names, as they stand in their subjects."
        ),
    ],
    config: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="The file of settings. [keyhouse.toml, if it is there]"),
    ] = None,
    json: Json = False,
) -> None:
    """Print permissions for nats-server that keep plugins apart.

    Each plugin can use only its own subjects and its own inbox. Include it in the server's configuration. The passwords
    are new each time: give each plugin its own, and the one of `keyhouse` to the service. A plugin connects with the
    inbox that stands above its name. The subjects are those of the same settings as keyhouse serve.
    """
    from keyhouse.cli.output import show_line
    from keyhouse.service.nats_acl import authorization
    from keyhouse.systems.rosey.acl import users

    found = users(plugins, _settings(config))
    if json:
        show_line({"users": found})
    else:
        print(authorization(found), end="")


def _settings(config: Path | None) -> Any:
    from keyhouse.settings import read_settings
    from keyhouse.settings.sources import load_settings
    from keyhouse.systems.registry import NAMES
    from keyhouse.systems.rosey.settings import Settings

    return read_settings(
        Settings,
        load_settings({}, os.environ, config, systems=NAMES).tables["rosey"],
        table="rosey",
    )
