"""`keyhouse token`: create a token for a service on this machine."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from keyhouse.advice import install_line
from keyhouse.cli.options import ConfigFile, Json, OptionalSystem, examples
from keyhouse.cli.output import show
from keyhouse.cli.systems import find_modules_beside, load_system, served_name
from keyhouse.errors import UsageError
from keyhouse.service.registry import load_service, system_names
from keyhouse.settings.sources import load_settings, only_system

_OPERATOR: Final = "operator"
"""The subject of an operator's token, for the log."""


@examples(
    "TOKEN=$(keyhouse token streamkit --customer 12345)",
    'curl --oauth2-bearer "$TOKEN" http://127.0.0.1:8080/streamkit/configs/notes',
    "keyhouse token streamkit --customer 12345 --scope read --hours 1 --json",
    "keyhouse token recipes:BOX --space ann --scope read --days 365",
    "keyhouse token --operator --scope studio:read",
)
def token(
    system: OptionalSystem = None,
    customer: Annotated[
        str | None,
        typer.Option(
            "--customer", "--space", metavar="ID", help="The tenant or space that the token is for."
        ),
    ] = None,
    operator: Annotated[
        bool,
        typer.Option(
            "--operator",
            help="An operator's token: for the Studio, or for the system named.",
        ),
    ] = False,
    scope: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help=(
                "A scope, such as read or write; of the Studio studio:read, studio:write or "
                "studio:admin; repeatable. [all]"
            ),
        ),
    ] = None,
    hours: Annotated[
        float | None, typer.Option(metavar="N", help="Lifetime of the token. [12]")
    ] = None,
    days: Annotated[
        float | None, typer.Option(metavar="N", help="Lifetime of the token, at most 366.")
    ] = None,
    data: Annotated[
        str | None,
        typer.Option(metavar="DIR", help="The data folder of keyhouse serve. [keyhouse-data]"),
    ] = None,
    config: ConfigFile = None,
    json: Json = False,
) -> None:
    """Print a token that the service accepts.

    It is valid for 12 hours, unless --hours or --days says otherwise: an overlay or a bot takes
    --days 365. A program of yours that people sign in to makes tokens with keyhouse.auth.mint.

    Without a system, it is for the only one in the settings of keyhouse serve. With --operator and
    no system, it is a token for the Studio, at /studio/ of the service.

    It is signed with the service's secret, from the settings of keyhouse serve (such as
    KEYHOUSE_STREAMKIT_JWT_SECRET) or from its data folder. If there is no secret yet, one is
    created, and the service will use it.
    """
    try:
        from keyhouse.service.tokens import mint_token
        from keyhouse.studio.settings import NAME, SCOPES, studio_service
    except ModuleNotFoundError as error:
        raise ImportError(f"Tokens need {error.name}: {install_line('serve')}") from error

    if hours is not None and days is not None:
        raise UsageError("Give only one of --hours and --days.")
    find_modules_beside(config)
    seconds = days * 86_400 if days is not None else (12 if hours is None else hours) * 3_600
    if system is None and not operator:
        system = only_system(os.environ, config)
    scopes: list[str] | None
    if system is None:
        if not operator:
            raise UsageError("Name the system, or give --operator for a token of the Studio.")
        if customer is not None:
            raise UsageError("A token of the Studio is for no space: leave --space out.")
        service, name, scopes = studio_service(), NAME, scope or [*SCOPES]
        known, subject = system_names(), {"operator": True, "scopes": scopes}
    else:
        service = load_system(system).service if ":" in system else load_service(system)
        name = served_name(system)
        _check_subject(service, system, customer, operator=operator, scope=scope)
        scopes = service.operator_scopes if customer is None else scope or None
        known = tuple({*system_names(), name})
        subject = {"operator": True} if customer is None else {"customer": customer}
    loaded = load_settings({"data": data}, os.environ, config, systems=known)
    folder = Path(loaded.settings.data)
    with _new_secret_noted(folder, name):
        created = mint_token(
            service,
            name,
            loaded.tables.get(name, {}),
            folder,
            _OPERATOR if customer is None else customer,
            scopes=scopes,
            seconds=seconds,
        )
    made = {"token": created, "system": name, **subject, "seconds": round(seconds)}
    show(made, lambda _: created, json=json)


def _check_subject(
    service: Any, system: str, customer: str | None, *, operator: bool, scope: list[str] | None
) -> None:
    """Raise UsageError unless the service has tokens for whom this one is for."""
    from keyhouse.auth import JwtSettings

    if customer is None and not operator and ":" in system:
        raise UsageError("Name the space: --space NAME.", system=system)
    options = {"--customer ID": service.scopes, "--operator": service.operator_scopes}
    takes = [option for option, scopes in options.items() if scopes]
    if not (takes and issubclass(service.settings, JwtSettings)):
        raise UsageError(
            "This system has no tokens: for the Studio, give --operator without a system.",
            system=system,
        )
    if (customer is None) is not operator:
        either = "either " * (len(takes) > 1)
        raise UsageError(f"Give {either}{' or '.join(takes)}.", system=system)
    if not (service.operator_scopes if operator else service.scopes):
        what = "operators: for the Studio, name no system" if operator else "customers"
        raise UsageError(f"This system has no tokens for {what}.", system=system)
    if operator and scope:
        raise UsageError("The scopes of an operator's token are fixed: omit --scope.", scope=scope)


@contextmanager
def _new_secret_noted(data: Path, system: str) -> Iterator[None]:
    """Note on standard error that a secret was created: in a wrong folder, nothing accepts it."""
    from keyhouse.auth import secret_path

    path = secret_path(data, system)
    was_there = path.exists()
    yield
    if not was_there and path.exists():
        print(
            f"keyhouse: Created the secret {path}, which signs this token. A service with another"
            " data folder rejects it: give its folder with --data.",
            file=sys.stderr,
        )
