"""The program's commands. Nothing heavy is imported here: a command imports what it needs when it runs, so help is quick."""

from typing import Annotated

import typer

from keyhouse import __version__
from keyhouse.cli.backup import backup
from keyhouse.cli.bench import bench
from keyhouse.cli.count import count
from keyhouse.cli.delete import delete
from keyhouse.cli.describe import describe
from keyhouse.cli.doctor import doctor
from keyhouse.cli.entry import exit_codes
from keyhouse.cli.explain import explain
from keyhouse.cli.export import export
from keyhouse.cli.get import get
from keyhouse.cli.import_ import import_
from keyhouse.cli.list import list_
from keyhouse.cli.migrate import migrate
from keyhouse.cli.move import move
from keyhouse.cli.put import put
from keyhouse.cli.restore import restore
from keyhouse.cli.rosey import rosey
from keyhouse.cli.scan import scan
from keyhouse.cli.serve import serve
from keyhouse.cli.spaces import spaces
from keyhouse.cli.stats import stats
from keyhouse.cli.streamkit import streamkit
from keyhouse.cli.sweep import sweep
from keyhouse.cli.tables import tables
from keyhouse.cli.token import token
from keyhouse.cli.verify import verify
from keyhouse.cli.watch import watch

HELP = """Declare a keyspace once, and get a typed, transactional, isolated, inspectable store.

\b
Try it:
  export KEYHOUSE_STORE=sqlite:bot.db KEYHOUSE_SPACE=trivia
  keyhouse put rosey theme '"dark"'
  keyhouse get rosey theme

Each command has examples: keyhouse put --help"""

app = typer.Typer(
    help=HELP,
    epilog=exit_codes(),
    no_args_is_help=True,
    rich_markup_mode=None,  # help without Rich starts in two thirds of the time
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command()(serve)
app.command()(token)
app.command()(get)
app.command()(put)
app.command()(delete)
app.command("list")(list_)
app.command()(scan)
app.command()(count)
app.command()(watch)
app.command()(spaces)
app.command()(stats)
app.command()(explain)
app.command()(verify)
app.command()(migrate)
app.command()(sweep)
app.command()(backup)
app.command()(restore)
app.command()(export)
app.command("import")(import_)
app.command()(move)
app.command()(tables)
app.command()(describe)
app.command()(doctor)
app.command()(bench)
app.add_typer(rosey, name="rosey")
app.add_typer(streamkit, name="streamkit")


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
    """Declare a keyspace once, and get a typed, transactional, isolated, inspectable store."""
