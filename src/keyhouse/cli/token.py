"""`keyhouse token`: a token for development, of a service on this machine."""

import os
from pathlib import Path
from typing import Annotated

import typer

from keyhouse.cli.options import examples
from keyhouse.cli.output import show_json
from keyhouse.cli.target import system_names
from keyhouse.systems.registry import NAMES, load_service


@examples(
    "TOKEN=$(keyhouse token streamkit --customer 12345)",
    'curl -H "Authorization: Bearer $TOKEN" http://127.0.0.1:8080/streamkit/configs/notes',
    "keyhouse token streamkit --customer 12345 --scope read --hours 1 --json",
)
def token(
    system: Annotated[
        str, typer.Argument(help="The system that the token is for: streamkit.", autocompletion=system_names)
    ],
    customer: Annotated[str, typer.Option(metavar="ID", help="Whom the token stands for: the tenant.")],
    scope: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME", help="What it allows, such as read; may be given several times. [all that is usual]"
        ),
    ] = None,
    hours: Annotated[float, typer.Option(help="How long it is good for.")] = 12.0,
    data: Annotated[
        str | None, typer.Option(metavar="DIR", help="The data folder of keyhouse serve. [keyhouse-data]")
    ] = None,
    config: Annotated[
        Path | None, typer.Option(metavar="FILE", help="The file of settings. [keyhouse.toml, if it is there]")
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="As JSON, for programs.")] = False,
) -> None:
    """Print a token that the service accepts, for development.

    It is signed with the service's secret. It needs the same settings as keyhouse serve, and its data folder: the
    secret is there, or in KEYHOUSE_STREAMKIT_JWT_SECRET. Where there is none yet it is made, and the service will use
    it.
    """
    from keyhouse.errors import UsageError

    try:
        from keyhouse.serve.sources import gather
    except ModuleNotFoundError as error:
        raise ImportError(f"Tokens need {error.name}: pip install 'keyhouse[serve]'") from error

    make = getattr(load_service(system), "token", None)
    if make is None:
        raise UsageError("This system has no tokens.", system=system)
    given = gather({"data": data}, os.environ, config, systems=NAMES)
    folder = Path(given.settings.data)
    made = make(given.tables[system], folder, customer, scopes=scope or None, seconds=hours * 3_600)
    if json:
        show_json({"token": made, "system": system, "customer": customer, "seconds": round(hours * 3_600)})
    else:
        print(made)
