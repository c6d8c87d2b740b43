"""`keyhouse token`: a token for development, of a service on this machine."""

import os
from pathlib import Path
from typing import Annotated, Final

import typer

from keyhouse.cli.options import examples
from keyhouse.cli.output import show_json
from keyhouse.cli.target import system_names
from keyhouse.systems.registry import NAMES, load_service

_OPERATOR: Final = "operator"
"""Whom the log names, when somebody looks at a value with such a token."""


@examples(
    "TOKEN=$(keyhouse token streamkit --customer 12345)",
    'curl --oauth2-bearer "$TOKEN" http://127.0.0.1:8080/streamkit/configs/notes',
    "keyhouse token streamkit --customer 12345 --scope read --hours 1 --json",
    "keyhouse token rosey --operator",
)
def token(
    system: Annotated[
        str,
        typer.Argument(
            metavar="SYSTEM",
            help="The system that the token is for: streamkit, rosey.",
            autocompletion=system_names,
        ),
    ],
    customer: Annotated[
        str | None, typer.Option(metavar="ID", help="Whom the token stands for: the tenant.")
    ] = None,
    operator: Annotated[
        bool,
        typer.Option(
            "--operator", help="For the operator's view, where the system has one: rosey."
        ),
    ] = False,
    scope: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME", help="What it allows: read or write; may be given several times. [both]"
        ),
    ] = None,
    hours: Annotated[float, typer.Option(metavar="N", help="How long it is good for.")] = 12.0,
    data: Annotated[
        str | None,
        typer.Option(metavar="DIR", help="The data folder of keyhouse serve. [keyhouse-data]"),
    ] = None,
    config: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="The file of settings. [keyhouse.toml, if it is there]"),
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="As JSON, for programs.")] = False,
) -> None:
    """Print a token that the service accepts, for development.

    It is signed with the service's secret. It needs the same settings as keyhouse serve, and its data folder: the
    secret is there, or in KEYHOUSE_STREAMKIT_JWT_SECRET, by the system's name. Where there is none yet it is made, and
    the service will use it.
    """
    from keyhouse.errors import UsageError

    try:
        from keyhouse.service.tokens import mint_token
        from keyhouse.settings.sources import load_settings
    except ModuleNotFoundError as error:
        raise ImportError(f"Tokens need {error.name}: pip install 'keyhouse[serve]'") from error

    service = load_service(system)
    if (customer is None) is not operator:
        ways = {"--customer": service.scopes, "--operator": service.operator_scopes}
        takes = [option for option, scopes in ways.items() if scopes]
        raise UsageError(
            "A token is for one: name --customer ID, or --operator.", system=system, takes=takes
        )
    if not (service.operator_scopes if operator else service.scopes):
        whose = "no operator's view" if operator else "no tokens of customers"
        raise UsageError(f"This system has {whose}.", system=system)
    if operator and scope:
        raise UsageError(
            "What an operator's token allows is fixed: leave --scope out.", scope=scope
        )
    given = load_settings({"data": data}, os.environ, config, systems=NAMES)
    made = mint_token(
        service,
        system,
        given.tables[system],
        Path(given.settings.data),
        _OPERATOR if customer is None else customer,
        scopes=service.operator_scopes if customer is None else scope or None,
        seconds=hours * 3_600,
    )
    if json:
        whom = {"operator": True} if customer is None else {"customer": customer}
        show_json({"token": made, "system": system, **whom, "seconds": round(hours * 3_600)})
    else:
        print(made)
