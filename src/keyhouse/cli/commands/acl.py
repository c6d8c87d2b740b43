"""`keyhouse acl` and `keyhouse nats-user`: users of NATS, and what they may do."""

from pathlib import Path
from typing import Annotated

import typer

from keyhouse.cli.options import Json, examples
from keyhouse.cli.output import show, show_line
from keyhouse.cli.systems import load_system
from keyhouse.cli.target import serve_settings
from keyhouse.errors import UsageError
from keyhouse.nats.embedded_users import add_user, embedded_url, remove_user


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


@examples(
    "keyhouse nats-user robot",
    "keyhouse nats-user robot --remove",
)
def nats_user(
    name: Annotated[str, typer.Argument(metavar="NAME", help="The user's name.")],
    remove: Annotated[
        bool, typer.Option("--remove", help="Remove the user; the server disconnects it.")
    ] = False,
    data: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="The data folder of keyhouse serve. [keyhouse-data]"),
    ] = None,
    json: Json = False,
) -> None:
    """Print the URL of a NATS user that may use the buckets.

    The user is one of the embedded NATS server. A chat robot, `kryten-py` and `nats kv` need one.
    It reaches all buckets and subjects but those of plugins and served schemas, which need no user.
    It is made unless it exists, and a running service has it a moment later. The URL lets a program
    read and change all buckets.
    """
    settings = serve_settings(data=data).settings
    folder = Path(settings.data)
    if remove:
        remove_user(folder, name)
        show({"removed": name}, lambda _: f"{name} is removed.", json=json)
        return
    password = add_user(folder, name)
    address = (embedded_url(folder) or f"@127.0.0.1:{settings.nats_port}").rpartition("@")[2]
    url = f"nats://{name}:{password}@{address}"
    show({"user": name, "url": url}, lambda _: url, json=json)
