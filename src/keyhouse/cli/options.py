"""The one way in which every command names a system, a store, a space and a key, and is told what to show.

    keyhouse COMMAND SYSTEM [KEY] --store URL --space NAME

What is not said stands in the environment: see `place`.
"""

from collections.abc import Callable
from inspect import cleandoc
from pathlib import Path
from typing import Annotated, Any, TypeVar

import typer

from keyhouse.cli.completion import complete_key, complete_space
from keyhouse.cli.target import SYSTEM_HELP, system_names

F = TypeVar("F", bound=Callable[..., Any])

SystemName = Annotated[str, typer.Argument(help=SYSTEM_HELP, autocompletion=system_names)]
Key = Annotated[str, typer.Argument(help="The key, as it is stored.", autocompletion=complete_key)]
Prefix = Annotated[
    str,
    typer.Argument(help="Only keys that start with this text; no character is special.", autocompletion=complete_key),
]
StoreUrl = Annotated[
    str | None,
    typer.Option(
        "--store", "-s", metavar="URL", help="The engine that holds the rows: sqlite:data.db [KEYHOUSE_STORE]"
    ),
]
DataFolder = Annotated[
    Path | None,
    typer.Option("--data", "-d", metavar="DIR", help="Instead of --store: the data folder of keyhouse serve."),
]
SpaceName = Annotated[
    str | None,
    typer.Option(
        "--space",
        "-p",
        metavar="NAME",
        help="The space, unless the key names it [KEYHOUSE_SPACE]",
        autocompletion=complete_space,
    ),
]
Only = Annotated[
    str | None,
    typer.Option(metavar="WHAT", help="Only rows of one record by its name; or `records`, or `derived` rows."),
]
Json = Annotated[bool, typer.Option("--json", help="As JSON, for programs.")]
JsonLines = Annotated[bool, typer.Option("--json", help="As JSON, one object a line, for programs.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do it without asking.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Say what would be done, and do nothing.")]


def examples(*commands: str) -> Callable[[F], F]:
    """Puts these at the end of a command's help, line by line as they are."""

    def shown(command: F) -> F:
        lines = "\n".join(f"  {each}" for each in commands)
        command.__doc__ = f"{cleandoc(command.__doc__ or '')}\n\n\b\nExamples:\n{lines}"
        return command

    return shown
