"""Arguments and options that commands share. Every command has the same form:

    keyhouse COMMAND SYSTEM [KEY|FILE|URL...] --store STORE --space NAME

The environment has the defaults: KEYHOUSE_SYSTEM here, the others in `target`.
"""

import os
import re
import sys
from collections.abc import Callable
from importlib.machinery import PathFinder
from inspect import cleandoc
from pathlib import Path
from typing import Annotated, Any, Final, TypeVar

import msgspec
import typer
from typer.core import TyperCommand

from keyhouse.cli.completion import complete_key, complete_space
from keyhouse.errors import UsageError
from keyhouse.service.registry import system_names
from keyhouse.store import ANY, Unset

__all__ = [
    "SYSTEM_HELP",
    "After",
    "AnyStore",
    "Command",
    "ConfigFile",
    "DryRun",
    "Json",
    "JsonLines",
    "Key",
    "Limit",
    "Location",
    "OptionalSystem",
    "Prefix",
    "Reverse",
    "RowType",
    "Selection",
    "SpaceName",
    "SpaceNames",
    "StoreName",
    "SystemName",
    "Token",
    "Yes",
    "access_token",
    "complete_system",
    "examples",
    "expected_revision",
]

F = TypeVar("F", bound=Callable[..., Any])

SYSTEM_HELP = f"A system ({', '.join(system_names())}), or your own schema as module:NAME."


def complete_system(incomplete: str) -> list[str]:
    """Return the systems that shell completion offers."""
    return [name for name in system_names() if name.startswith(incomplete)]


SystemName = Annotated[
    str,
    typer.Argument(
        metavar="SYSTEM", help=f"{SYSTEM_HELP} [KEYHOUSE_SYSTEM]", autocompletion=complete_system
    ),
]
OptionalSystem = Annotated[
    str | None,
    typer.Argument(
        metavar="SYSTEM", help=f"{SYSTEM_HELP} [KEYHOUSE_SYSTEM]", autocompletion=complete_system
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
StoreName = Annotated[
    str | None,
    typer.Option(
        "--store",
        "-s",
        metavar="STORE",
        help="The rows: the URL of an engine, such as sqlite:data.db, or a data folder of keyhouse"
        " serve [KEYHOUSE_STORE]",
    ),
]
AnyStore = Annotated[
    str | None,
    typer.Option(
        "--store",
        "-s",
        metavar="STORE",
        help="The rows: the URL of an engine, such as sqlite:data.db, a data folder of keyhouse"
        " serve, or a running service, such as http://host:8080 or nats://host:4222"
        " [KEYHOUSE_STORE]",
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


class Location(msgspec.Struct, frozen=True):
    """A space in a store or a running service: `--space`, `--store` and `--token`."""

    space: str | None = None
    store: str | None = None
    token: str | None = None


class Selection(msgspec.Struct, frozen=True, kw_only=True):
    """The rows of a space with a prefix and a type, from `after` on and in this order."""

    prefix: str = ""
    type: str | None = None
    limit: int | None = None
    after: str | None = None
    reverse: bool = False


def access_token(token: str | None) -> str | None:
    return token or os.environ.get("KEYHOUSE_TOKEN") or None


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

OTHER_WORDS: Final = {
    "--bind": "--http",
    "--channel": "--space",
    "--customer": "--space",
    "--database": "--store",
    "--db": "--store",
    "--expires": "--days",
    "--fix": "--repair",
    "--host": "--http",
    "--origin": "--cors",
    "--port": "--http",
    "--static": "--pages",
    "--tenant": "--space",
    "--ttl": "--days",
    "--url": "--store",
    "--user": "--space",
}
"""Options that other programs have, and the option here: too far apart to be near."""


class Command(TyperCommand):
    """A command whose SYSTEM argument defaults to KEYHOUSE_SYSTEM, or, if it is required, to the
    only system in the settings of `serve`. Where it is optional, the command itself decides.

    With the variable set, the first argument is a system only if it is one of the known names or
    the variable's own value; anything else is the argument after it. A key may look like
    `module:NAME`. Without it, `module:NAME` is a system if there is such a module.
    """

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        self._reject_other_words(ctx, args)
        if (default := self._default_system(args)) is not None:
            args = [default, *args]
        ctx.allow_extra_args = True  # rejected below, with advice
        extra: list[str] = super().parse_args(ctx, args)
        if extra and not ctx.resilient_parsing:
            argument = "argument" if len(extra) == 1 else "arguments"
            advice = _advice(ctx, extra)
            ctx.fail(f"Got unexpected extra {argument} ({' '.join(extra)}).{advice}")
        return extra

    def _reject_other_words(self, ctx: Any, args: list[str]) -> None:
        """Exit with 2 at an option that has another name here, and say which."""
        known = {name for parameter in self.params for name in parameter.opts}
        for word in args[: args.index("--") if "--" in args else None]:
            name = word.partition("=")[0]
            meant = OTHER_WORDS.get(name)
            if meant in known and name not in known:
                ctx.fail(f"No such option: {name}. Did you mean {meant}?")

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
            return None if first in (*system_names(), default) else default
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
    match = re.fullmatch(r"([A-Za-z_]\w*+)[\w.]*+:[A-Za-z_]\w*", name)
    if match is None or match[1] in sys.stdlib_module_names:
        return name in system_names()
    return PathFinder.find_spec(match[1], [os.getcwd(), *sys.path]) is not None


def _advice(ctx: Any, extra: list[str]) -> str:
    """Return a sentence for a key whose parts were given as several arguments."""
    first = next((ctx.params[name] for name in ("key", "prefix") if ctx.params.get(name)), None)
    if first is None:
        return ""
    rest = [ctx.params["value"]] if ctx.params.get("value") else extra
    return f" A key is one argument, as in {':'.join([first, *rest])}."


def examples(*commands: str) -> Callable[[F], F]:
    """Append these commands to a command's help."""

    def add(command: F) -> F:
        lines = "\n".join(f"  {each}" for each in commands)
        command.__doc__ = f"{cleandoc(command.__doc__ or '')}\n\n\b\nExamples:\n{lines}"
        return command

    return add
