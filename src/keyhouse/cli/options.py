"""The one way in which every command names a system, a store, a space and a key, and is told what to show.

    keyhouse COMMAND SYSTEM [KEY] --store URL --space NAME
    keyhouse COMMAND SYSTEM [KEY] --service URL --space NAME

What is not said stands in the environment: see `place`.
"""

from collections.abc import Callable
from functools import wraps
from inspect import Parameter, cleandoc, signature
from pathlib import Path
from typing import Annotated, Any, TypeVar, get_type_hints

import msgspec
import typer

from keyhouse.cli.completion import complete_key, complete_space
from keyhouse.cli.target import SYSTEM_HELP, system_names

F = TypeVar("F", bound=Callable[..., Any])

SystemName = Annotated[
    str, typer.Argument(metavar="SYSTEM", help=SYSTEM_HELP, autocompletion=system_names)
]
Key = Annotated[
    str,
    typer.Argument(metavar="KEY", help="The key, as it is stored.", autocompletion=complete_key),
]
Prefix = Annotated[
    str,
    typer.Argument(
        metavar="PREFIX",
        help="Only keys that start with this text; no character is special.",
        autocompletion=complete_key,
    ),
]
StoreUrl = Annotated[
    str | None,
    typer.Option(
        "--store",
        "-s",
        metavar="URL",
        help="The engine that holds the rows: sqlite:data.db [KEYHOUSE_STORE]",
    ),
]
DataFolder = Annotated[
    Path | None,
    typer.Option(
        "--data", "-d", metavar="DIR", help="Instead of --store: the data folder of keyhouse serve."
    ),
]
ServiceUrl = Annotated[
    str | None,
    typer.Option(
        "--service",
        metavar="URL",
        help="Instead of --store: a running service, nats://host:4222 or http://host:8080 [KEYHOUSE_SERVICE]",
    ),
]
Token = Annotated[
    str | None,
    typer.Option(
        "--token", metavar="TOKEN", help="For a service that asks for one [KEYHOUSE_TOKEN]"
    ),
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
    typer.Option(
        metavar="WHAT", help="Only rows of one record by its name; or `records`, or `derived` rows."
    ),
]
Limit = Annotated[int | None, typer.Option(min=1, metavar="N", help="No more than this many.")]
After = Annotated[str | None, typer.Option(metavar="KEY", help="Go on behind this key.")]
Reverse = Annotated[bool, typer.Option("--reverse", help="From the last to the first.")]
Json = Annotated[bool, typer.Option("--json", help="As JSON, for programs.")]
JsonLines = Annotated[
    bool, typer.Option("--json", help="As JSON, one object a line, for programs.")
]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do it without asking.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Say what would be done, and do nothing.")]


class Where(msgspec.Struct, frozen=True, kw_only=True):
    """A space, and where it is: in a store, or with a running service. Of the last four, one kind at most."""

    space: SpaceName = None
    store: StoreUrl = None
    data: DataFolder = None
    service: ServiceUrl = None
    token: Token = None


class Selection(Where, frozen=True, kw_only=True):
    """Which rows of it."""

    system: SystemName
    prefix: Prefix = ""
    only: Only = None


class Query(Selection, frozen=True, kw_only=True):
    """How many of them, and from where on."""

    limit: Limit = None
    after: After = None
    reverse: Reverse = False


def spread(command: F) -> F:
    """An argument that is a Struct of options becomes these options: what commands share is said once, in that Struct."""
    hints = get_type_hints(command, include_extras=True)
    groups = {
        name: kind
        for name, kind in hints.items()
        if isinstance(kind, type) and issubclass(kind, Where)
    }

    @wraps(command)
    def called(**given: Any) -> Any:
        made = {
            name: kind(**{each: given.pop(each) for each in kind.__struct_fields__})
            for name, kind in groups.items()
        }
        return command(**made, **given)

    parameters = [
        each
        for parameter in signature(command).parameters.values()
        for each in (_options(groups[parameter.name]) if parameter.name in groups else [parameter])
    ]
    called.__signature__ = signature(command).replace(parameters=parameters)  # type: ignore[attr-defined]
    called.__annotations__ = {each.name: each.annotation for each in parameters} | {"return": None}
    return called  # type: ignore[return-value]


def _options(group: type[Where]) -> list[Parameter]:
    """The group's own fields before those that it shares: a system and a key come first."""
    hints = get_type_hints(group, include_extras=True)
    own = [name for name in group.__struct_fields__ if name not in Where.__struct_fields__]
    fields = {field.name: field for field in msgspec.structs.fields(group)}
    return [
        Parameter(
            name,
            Parameter.POSITIONAL_OR_KEYWORD,
            annotation=hints[name],
            default=Parameter.empty if fields[name].required else fields[name].default,
        )
        for name in (*own, *Where.__struct_fields__)
    ]


def examples(*commands: str) -> Callable[[F], F]:
    """Puts these at the end of a command's help, line by line as they are."""

    def shown(command: F) -> F:
        lines = "\n".join(f"  {each}" for each in commands)
        command.__doc__ = f"{cleandoc(command.__doc__ or '')}\n\n\b\nExamples:\n{lines}"
        return command

    return shown


def renamed(old: str, new: str, *, flag: bool = False) -> Callable[[F], F]:
    """Reject a command's old option with an error, exit code 2, that names its replacement.

    `new` is the option's new name, or the form of the command that replaces it. `flag`: the old
    option took no value.
    """
    name = f"renamed{old.replace('-', '_')}"

    def reject(ctx: typer.Context, value: Any) -> None:
        if value:
            ctx.fail(f"{old} was replaced: use {new}.")

    kind: Any = bool if flag else str | None
    option = typer.Option(old, hidden=True, is_eager=True, callback=reject, expose_value=False)
    parameter = Parameter(
        name,
        Parameter.KEYWORD_ONLY,
        annotation=Annotated[kind, option],
        default=False if flag else None,
    )

    def add(command: F) -> F:
        @wraps(command)
        def called(**given: Any) -> Any:
            given.pop(name, None)
            return command(**given)

        parameters = [*signature(command).parameters.values(), parameter]
        called.__signature__ = signature(command).replace(parameters=parameters)  # type: ignore[attr-defined]
        called.__annotations__ = command.__annotations__ | {name: parameter.annotation}
        return called  # type: ignore[return-value]

    return add
