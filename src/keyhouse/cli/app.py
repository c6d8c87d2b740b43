"""The program's commands, in the order of its help.

Commands import slow dependencies (Rich, drivers, servers) when they run, and a system's own
commands are imported only when one of them is called, so that help is fast.
"""

from collections.abc import Callable
from textwrap import wrap
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from keyhouse import __version__
from keyhouse.cli.commands.acl import acl, nats_user
from keyhouse.cli.commands.backup import backup
from keyhouse.cli.commands.bench import bench
from keyhouse.cli.commands.convert import convert
from keyhouse.cli.commands.delete import delete
from keyhouse.cli.commands.describe import describe
from keyhouse.cli.commands.doctor import doctor
from keyhouse.cli.commands.explain import explain
from keyhouse.cli.commands.export import export
from keyhouse.cli.commands.get import get
from keyhouse.cli.commands.import_ import import_
from keyhouse.cli.commands.jobs import jobs
from keyhouse.cli.commands.list import count, list_, scan
from keyhouse.cli.commands.migrate import migrate
from keyhouse.cli.commands.move import move
from keyhouse.cli.commands.put import put
from keyhouse.cli.commands.restore import restore
from keyhouse.cli.commands.serve import restart, serve
from keyhouse.cli.commands.stats import spaces, stats
from keyhouse.cli.commands.studio import studio
from keyhouse.cli.commands.sweep import sweep
from keyhouse.cli.commands.tables import tables
from keyhouse.cli.commands.token import token
from keyhouse.cli.commands.verify import verify
from keyhouse.cli.commands.watch import watch
from keyhouse.cli.options import Command
from keyhouse.service.registry import load_system, system_names

HELP = """Declare a keyspace once; get a typed, transactional, isolated, inspectable store.

A command takes the schema first, then keys, files or URLs: your own as module:NAME
(board:BOARD is BOARD in board.py), or a system that ships with Keyhouse, such as
rosey. The rows are in one space of a store: --store is the URL of an engine, the
data folder of a service, or the URL of a running one. Without it, the rows are in
the data folder keyhouse-data, if there is one.

\b
Try it with the README's board.py:
  export KEYHOUSE_STORE=sqlite:board.db KEYHOUSE_SPACE=channel-7
  keyhouse scan board:BOARD
  keyhouse explain board:BOARD clip:goal

\b
Serve it: a service has its rows in a data folder, keyhouse-data.
  keyhouse move board:BOARD sqlite:board.db keyhouse-data
  keyhouse serve board:BOARD

\b
Defaults from the environment:
  KEYHOUSE_SYSTEM   the system, which may then be left out
  KEYHOUSE_STORE    --store;  KEYHOUSE_SPACE --space;  KEYHOUSE_TOKEN --token

Each command has examples: keyhouse put --help"""

EXIT_CODES = {
    0: "Success.",
    1: "Rejected: the message gives the reason. Nothing was changed, unless it says otherwise.",
    2: "Usage error: an unknown option, a missing argument.",
    3: "Not found: the key has no row, or the row has expired.",
    4: "Conflict with the stored state, such as an unexpected revision. Nothing was changed.",
    5: "`verify` found problems that were not repaired, or `migrate --dry-run` found work.",
    130: "Interrupted by Ctrl-C. Every commit was completed or not made, never half made.",
}


def exit_codes() -> str:
    """Return the exit codes as the last lines of the help."""
    width = max(len(str(code)) for code in EXIT_CODES)
    lines = [
        wrap(
            meaning, 76, initial_indent=f"  {code:>{width}}  ", subsequent_indent=" " * (width + 4)
        )
        for code, meaning in EXIT_CODES.items()
    ]
    return "\n".join(["\b", "Exit codes:", *(line for each in lines for line in each)])


class SystemGroup(TyperGroup):
    """The commands of one system, imported from its `commands.py` on first use."""

    def list_commands(self, ctx: Any) -> list[str]:
        return self._group().list_commands(ctx)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        return self._group().get_command(ctx, cmd_name)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        return self._group().resolve_command(ctx, args)  # it knows the commands to suggest

    def _group(self) -> TyperGroup:
        group = typer.main.get_command(load_system(self.name or "").commands)
        assert isinstance(group, TyperGroup), "a system's commands have a callback"
        return group


app = typer.Typer(
    help=HELP,
    epilog=exit_codes(),
    no_args_is_help=True,
    rich_markup_mode=None,  # help without Rich takes two thirds of the time
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
COMMAND_FUNCTIONS: dict[str, Callable[..., None]] = {
    "serve": serve,
    "restart": restart,
    "token": token,
    "acl": acl,
    "nats-user": nats_user,
    "studio": studio,
    "jobs": jobs,
    "get": get,
    "put": put,
    "delete": delete,
    "list": list_,
    "scan": scan,
    "count": count,
    "watch": watch,
    "spaces": spaces,
    "stats": stats,
    "explain": explain,
    "verify": verify,
    "migrate": migrate,
    "convert": convert,
    "sweep": sweep,
    "backup": backup,
    "restore": restore,
    "export": export,
    "import": import_,
    "move": move,
    "tables": tables,
    "describe": describe,
    "doctor": doctor,
    "bench": bench,
}
for name, command in COMMAND_FUNCTIONS.items():
    app.command(name, cls=Command)(command)
for system in map(load_system, system_names()):
    if system.has("commands"):
        group = typer.Typer(
            cls=SystemGroup,
            help=f"{system.title}: more commands.",
            no_args_is_help=True,
            rich_markup_mode=None,
        )
        group.callback()(lambda: None)
        app.add_typer(group, name=system.name)


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"keyhouse {__version__}")
        raise typer.Exit


@app.callback()
def keyhouse(
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_show_version, is_eager=True, help="Show the version, and exit."
        ),
    ] = False,
) -> None:
    """Declare a keyspace once; get a typed, transactional, isolated, inspectable store."""
