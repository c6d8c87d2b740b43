"""`keyhouse rosey`: commands for the operator of plugin storage."""

import os
from pathlib import Path
from typing import Annotated, Any

import typer

from keyhouse.cli.options import ConfigFile, Json, examples
from keyhouse.cli.output import show_line

app = typer.Typer(no_args_is_help=True, rich_markup_mode=None)


@app.callback()
def rosey() -> None:
    """Plugin storage over NATS."""


@app.command()
@examples("keyhouse rosey acl trivia quote-db > authorization.conf")
def acl(
    plugins: Annotated[
        list[str],
        typer.Argument(metavar="PLUGIN...", help="The plugins' names, as in their subjects."),
    ],
    config: ConfigFile = None,
    json: Json = False,
) -> None:
    """Print nats-server permissions that isolate plugins.

    Each plugin can use only its own subjects and inbox. Include the output in the server's
    configuration. Passwords are new each time: give each plugin its own, and that of `keyhouse` to
    the service. A plugin connects with the inbox prefix above its name. The subjects come from the
    settings of keyhouse serve.
    """
    from keyhouse.service.nats_acl import authorization
    from keyhouse_rosey.acl import users

    permissions = users(plugins, _settings(config))
    if json:
        show_line({"users": permissions})
    else:
        print(authorization(permissions), end="")


def _settings(config: Path | None) -> Any:
    from keyhouse.service.registry import system_names
    from keyhouse.settings import read_settings
    from keyhouse.settings.sources import load_settings
    from keyhouse_rosey.settings import RoseySettings

    loaded = load_settings({}, os.environ, config, systems=system_names())
    return read_settings(RoseySettings, loaded.tables["rosey"], table="rosey")
