"""`keyhouse acl`: NATS permissions for the spaces of a served schema."""

from typing import Annotated

import typer

from keyhouse.cli.options import Json, examples
from keyhouse.cli.output import show_line
from keyhouse.cli.target import load_system
from keyhouse.errors import UsageError


@examples("keyhouse acl recipes:BOX ann bob > authorization.conf")
def acl(
    system: Annotated[
        str,
        typer.Argument(metavar="SYSTEM", help="Your own schema as module:NAME. [KEYHOUSE_SYSTEM]"),
    ],
    spaces: Annotated[list[str], typer.Argument(metavar="SPACE...", help="Names of spaces.")],
    json: Json = False,
) -> None:
    """Print nats-server permissions, one user for each space.

    Each user can use only the subjects of its space, its inbox and its changes. Include the output
    in the server's configuration. Passwords are new each time: give each client its own, and that
    of `keyhouse` to the service. A client connects with the inbox prefix above its name.
    """
    if ":" not in system:
        raise UsageError(
            "Name your own schema as module:NAME; for plugins, `keyhouse rosey acl`.", schema=system
        )
    from keyhouse.service.nats_acl import authorization
    from keyhouse.service.schema_service.acl import space_users

    users = space_users(load_system(system).schemas[0], spaces)
    if json:
        show_line({"users": users})
    else:
        print(authorization(users), end="")
