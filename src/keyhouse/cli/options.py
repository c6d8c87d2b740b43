"""Arguments and options that commands share. Every command has the same form:

    keyhouse COMMAND SYSTEM [KEY|FILE|URL...] --store URL --space NAME
    keyhouse COMMAND SYSTEM [KEY] --service URL --space NAME

The environment has the defaults: KEYHOUSE_SYSTEM here, the others in `target`.
"""

import os
import re
import sys
from collections.abc import Callable
from functools import wraps
from importlib.machinery import PathFinder
from inspect import Parameter, cleandoc, signature
from pathlib import Path
from typing import Annotated, Any, TypeVar, cast, get_type_hints

import msgspec
import typer
from typer.core import TyperCommand

from keyhouse.cli.completion import complete_key, complete_space
from keyhouse.errors import UsageError
from keyhouse.store import ANY, Unset
from keyhouse.systems.registry import NAMES

__all__ = [
    "SYSTEM_HELP",
    "After",
    "Command",
    "ConfigFile",
    "DataFolder",
    "DryRun",
    "Json",
    "JsonLines",
    "Key",
    "Limit",
    "Location",
    "OptionalSystem",
    "Prefix",
    "Query",
    "Reverse",
    "RowType",
    "Selection",
    "ServiceUrl",
    "SpaceName",
    "SpaceNames",
    "StoreUrl",
    "SystemName",
    "Token",
    "Yes",
    "examples",
    "expected_revision",
    "spread",
    "system_names",
]

F = TypeVar("F", bound=Callable[..., Any])

SYSTEM_HELP = f"A system ({', '.join(NAMES)}), or your own schema as module:NAME."


def system_names(incomplete: str) -> list[str]:
    """Return the systems that shell completion offers."""
    return [name for name in NAMES if name.startswith(incomplete)]


SystemName = Annotated[
    str,
    typer.Argument(
        metavar="SYSTEM", help=f"{SYSTEM_HELP} [KEYHOUSE_SYSTEM]", autocompletion=system_names
    ),
]
OptionalSystem = Annotated[
    str | None,
    typer.Argument(
        metavar="SYSTEM", help=f"{SYSTEM_HELP} [KEYHOUSE_SYSTEM]", autocompletion=system_names
    ),
]
Key = Annotated[
    str,
    typer.Argument(metavar="KEY", help="The key, as stored.", autocompletion=complete_key),
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
        help="URL of the engine that holds the rows: sqlite:data.db [KEYHOUSE_STORE]",
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
        help="Instead of --store: a running service, http://host:8080 for your own schema and"
        " streamkit, nats://host:4222 for rosey [KEYHOUSE_SERVICE]",
    ),
]
Token = Annotated[
    str | None,
    typer.Option(
        "--token", metavar="TOKEN", help="Access token, if the service needs one [KEYHOUSE_TOKEN]"
    ),
]
SpaceName = Annotated[
    str | None,
    typer.Option(
        "--space",
        "-p",
        metavar="NAME",
        help="The space, unless the key contains it [KEYHOUSE_SPACE]",
        autocompletion=complete_space,
    ),
]
SpaceNames = Annotated[
    list[str] | None,
    typer.Option(
        "--space",
        "-p",
        metavar="NAME",
        help="Only this space; repeatable. Default: all spaces.",
        autocompletion=complete_space,
    ),
]
RowType = Annotated[
    str | None,
    typer.Option(
        "--type",
        metavar="WHAT",
        help="Only rows of this record; or `records`, or `derived` for all derived rows.",
    ),
]
Limit = Annotated[int | None, typer.Option(min=1, metavar="N", help="Maximum number of rows.")]
After = Annotated[str | None, typer.Option(metavar="KEY", help="Start after this key.")]
Reverse = Annotated[bool, typer.Option("--reverse", help="In descending order.")]
ConfigFile = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="The settings file. [keyhouse.toml, if it exists]"),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON, for programs.")]
JsonLines = Annotated[
    bool, typer.Option("--json", help="Print JSON, one object per line, for programs.")
]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Show what would be done, and do nothing.")]


class Location(msgspec.Struct, frozen=True, kw_only=True):
    """A space in a store or a running service. At most one of `store`, `data`, `service`."""

    space: SpaceName = None
    store: StoreUrl = None
    data: DataFolder = None
    service: ServiceUrl = None
    token: Token = None


class Selection(Location, frozen=True, kw_only=True):
    """The rows of a space with a prefix and a type."""

    system: SystemName
    prefix: Prefix = ""
    type: RowType = None


class Query(Selection, frozen=True, kw_only=True):
    """A page of a selection."""

    limit: Limit = None
    after: After = None
    reverse: Reverse = False


def expected_revision(text: str | None) -> int | Unset | None:
    """Parse `--expect` for the store: a revision, None for "absent", or no expectation."""
    if text is None:
        return ANY
    if text == "absent":
        return None
    if not re.fullmatch(r"[0-9]{1,19}", text):
        raise UsageError("A revision is a whole number, or `absent`.", expect=text)
    return int(text)


# Commands


class Command(TyperCommand):
    """A command whose SYSTEM argument defaults to KEYHOUSE_SYSTEM, or, if it is required, to the
    only system in the settings of `serve`. Where it is optional, the command itself decides.

    With the variable set, the first argument is a system only if it is one of the known names or
    the variable's own value; anything else is the argument after it. A key may look like
    `module:NAME`. Without it, `module:NAME` is a system if there is such a module.
    """

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if (default := self._default_system(args)) is not None:
            args = [default, *args]
        ctx.allow_extra_args = True  # rejected below, with advice
        extra: list[str] = super().parse_args(ctx, args)
        if extra and not ctx.resilient_parsing:
            argument = "argument" if len(extra) == 1 else "arguments"
            advice = _advice(ctx, extra)
            ctx.fail(f"Got unexpected extra {argument} ({' '.join(extra)}).{advice}")
        return extra

    def _default_system(self, args: list[str]) -> str | None:
        """Return the system to put first, if the arguments do not name one."""
        parameter = next((each for each in self.params if each.name == "system"), None)
        if parameter is None:
            return None
        first = self._first_argument(args)
        if (
            first is not None
            and sum(each.param_type_name == "argument" for each in self.params) == 1
        ):
            return None  # it is the system, known or not
        if default := os.environ.get("KEYHOUSE_SYSTEM"):
            return None if first in (*NAMES, default) else default
        if not parameter.required or "--help" in args or "-h" in args or _is_system(first):
            return None
        from keyhouse.settings.sources import only_system

        default = only_system(os.environ)
        return None if first == default else default

    def _first_argument(self, args: list[str]) -> str | None:
        takes_value = {
            name
            for parameter in self.params
            for name in parameter.opts
            if not getattr(parameter, "is_flag", False)
        }
        words = iter(args)
        for word in words:
            if word == "--":
                return next(words, None)
            if not word.startswith("-") or word == "-":
                return word
            if word in takes_value:
                next(words, None)
        return None


def _is_system(word: str | None) -> bool:
    """Return whether an argument names a system: a known one, or a schema in a module that can be
    imported, also from the working directory."""
    name = (word or "").partition("@")[0]
    match = re.fullmatch(r"([A-Za-z_]\w*)[\w.]*:[A-Za-z_]\w*", name)
    if match is None or match[1] in sys.stdlib_module_names:
        return name in NAMES
    return PathFinder.find_spec(match[1], [os.getcwd(), *sys.path]) is not None


def _advice(ctx: Any, extra: list[str]) -> str:
    """Return a sentence for a key whose parts were given as several arguments."""
    first = next((ctx.params[name] for name in ("key", "prefix") if ctx.params.get(name)), None)
    if first is None:
        return ""
    rest = [ctx.params["value"]] if ctx.params.get("value") else extra
    return f" A key is one argument, as in {':'.join([first, *rest])}."


def spread(command: F) -> F:
    """Replace a parameter that is a Struct of options by those options.

    Options that several commands share are declared once, in such a Struct.
    """
    hints = get_type_hints(command, include_extras=True)
    groups = {
        name: kind
        for name, kind in hints.items()
        if isinstance(kind, type) and issubclass(kind, Location)
    }

    @wraps(command)
    def call(**given: Any) -> Any:
        structs = {
            name: kind(**{field: given.pop(field) for field in kind.__struct_fields__})
            for name, kind in groups.items()
        }
        return command(**structs, **given)

    parameters = [
        each
        for parameter in signature(command).parameters.values()
        for each in (_options(groups[parameter.name]) if parameter.name in groups else [parameter])
    ]
    return cast(F, _with_parameters(call, parameters))


def _options(group: type[Location]) -> list[Parameter]:
    """Return a group's options, its own first: a system and a key are the first arguments."""
    hints = get_type_hints(group, include_extras=True)
    own = [name for name in group.__struct_fields__ if name not in Location.__struct_fields__]
    fields = {field.name: field for field in msgspec.structs.fields(group)}
    return [
        Parameter(
            name,
            Parameter.POSITIONAL_OR_KEYWORD,
            annotation=hints[name],
            default=Parameter.empty if fields[name].required else fields[name].default,
        )
        for name in (*own, *Location.__struct_fields__)
    ]


def _with_parameters(call: Any, parameters: list[Parameter]) -> Any:
    """Set the signature that Typer reads."""
    call.__signature__ = signature(call).replace(parameters=parameters)
    call.__annotations__ = {each.name: each.annotation for each in parameters} | {"return": None}
    return call


def examples(*commands: str) -> Callable[[F], F]:
    """Append these commands to a command's help."""

    def add(command: F) -> F:
        lines = "\n".join(f"  {each}" for each in commands)
        command.__doc__ = f"{cleandoc(command.__doc__ or '')}\n\n\b\nExamples:\n{lines}"
        return command

    return add
