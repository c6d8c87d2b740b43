"""`python -m tools.reference`, a part of `make docs`: write the parts of docs/ that are made from
the code.

Whole pages are docs/api.md, docs/cli.md and systems/<name>/keyspace.md. In other pages, the
text between `<!-- made: name -->` and `<!-- end -->` is generated: the tables of limits, engines
and settings. A test compares all of it with the code.
"""

import ast
import re
import sys
import textwrap
from collections.abc import Iterator
from importlib import import_module
from inspect import cleandoc
from itertools import pairwise
from pathlib import Path
from types import ModuleType
from typing import Any, get_args, get_origin

import msgspec
import typer

from keyhouse.cli.app import EXIT_CODES, SystemGroup, app
from keyhouse.engine import Capabilities
from keyhouse.http import HttpSettings
from keyhouse.operations.table import VERBS
from keyhouse.schema.description import describe, prose
from keyhouse.schema.diagram import mermaid
from keyhouse.schema.keyspace_document import document
from keyhouse.schema.operation import OPERATIONS
from keyhouse.service.registry import has_service, load_service, load_system, system_names
from keyhouse.service.schema_service.settings import SchemaSettings
from keyhouse.settings.settings import ServerSettings
from tools.api_reference import api_page
from tools.screens import SCREENS

_NOTE = "<!-- Made by `make docs` from the code: change it there. -->\n"

_ENGINES = (
    "memory",
    "sqlite.engine",
    "postgres.engine",
    "rocksdb.engine",
    "jetstream.engine",
    "dynamodb.engine",
)
"""Modules with each engine's `CAPABILITIES`, imported when the page is written: they import
drivers."""

_FLAGS = {"systems": "`SYSTEM…`"} | {
    name: f"`--{name.replace('_', '-')}`"
    for name in ("data", "engine", "http", "pages", "nats", "nats_port")
}
"""The settings that are also options of `keyhouse serve`."""

_ABOUT = """\
    keyhouse COMMAND SYSTEM [KEY, FILE or URL] [OPTIONS]

The **system** is always the first argument: one of the five, or your own schema as `module:NAME`.
Keys, files and URLs follow, in the same order everywhere: `get SYSTEM KEY`, `backup SYSTEM FILE`,
`restore SYSTEM FILE`, `move SYSTEM FROM TO`. A key is written as it is stored. The **store** is
`--store STORE`, in one of three forms. The **space** is `--space NAME`, unless the key contains it.

| `--store` | what it is |
|---|---|
| `sqlite:data.db`, `postgresql://host/db`, `nats://host/?bucket=b` | an [engine](engines.md) |
| `keyhouse-data` | a data folder of `keyhouse serve`: the engine that it uses there |
| `http://host:8080`, `nats://host:4222` | a running service; over NATS without `bucket`, `prefix` |

Defaults come from the environment: `KEYHOUSE_SYSTEM`, `KEYHOUSE_STORE` and `KEYHOUSE_SPACE`. With
`KEYHOUSE_SYSTEM` set, the system may be left out: `keyhouse get theme`. The first argument is then
a system only if it is one of the five names, or the value of the variable. Without it, commands
take the one that the settings of `keyhouse serve` name, if it is one: with `systems =
["board:BOARD"]` in `keyhouse.toml`, `keyhouse list` lists the keys of a board. `doctor` checks all
that they name; `bench` takes none, since it writes. Without a store, commands use the one that
`keyhouse serve` would use by its settings (`engine`, `data`, and the `engine` of a system), from
the environment or `keyhouse.toml`; without these, its data folder `keyhouse-data`, if it exists.

A running **service** serves `get`, `put`, `delete`, `list`, `scan`, `count` and `watch`: `--store
http://host:8080` with `--token` for your own schema, streamkit, history, audiobooks and playlist,
`--store nats://host:4222` with `--space` for your own schema and rosey (with the user and password
of the space in the URL, if the server requires them). The environment has `KEYHOUSE_STORE` and
`KEYHOUSE_TOKEN`, which other users of the machine can't see as they can a command line. A service
returns less than an engine: members that it does not return (the expiry of a plugin's value,
revisions in a list) are omitted, and what it can't do is an error with the alternative: of the
services, only those of audiobooks and playlist list derived rows, to the token of an admin.
Streamkit's service has no watch, and finds a config by type and id at either version of its key; a
customer's list is its export. No service deletes many records at once. The customer is read from
the token's claims `customerId`, `userId` or `sub`.

A running service does not block these commands: SQLite, PostgreSQL, NATS and DynamoDB can be opened
at the same time, and a watch sees the service's writes. A RocksDB folder belongs to one process:
use the service, or stop it.

The extra `cli` installs the program. `keyhouse --install-completion` adds completion to your shell.
Every command has `--json` for programs; without it, output is coloured on a terminal and plain in a
pipe. Errors go to standard error, as one sentence with its fields, or as JSON with `--json`: see
[errors](errors.md).
"""


def pages(docs: Path) -> dict[Path, str]:
    """Return the text of every page that is generated, or has a generated part."""
    made = {docs / "cli.md": command_page(), docs / "api.md": api_page()}
    for name in system_names():
        made[docs.parent / "systems" / name / "keyspace.md"] = _keyspace_page(name)
    for page, name, table in (
        ("limits.md", "limits", limits_list()),
        ("engines.md", "engines", engines_table()),
        ("serving.md", "settings", settings_lists()),
        ("guides/serve-your-schema.md", "operations", operations_table()),
    ):
        made[docs / page] = _with_generated((docs / page).read_text(), name, table)
    return made


def command_page() -> str:
    group: Any = typer.main.get_command(app)
    lines = [
        "# The command line\n",
        _NOTE,
        group.help.partition("\n\n")[0] + "\n",
        _wrapped(_ABOUT) + "\n",
    ]
    for name, command in commands(group):
        lines += _command(name, command)
    lines += ["## Exit codes\n", "| code | meaning |", "|---|---|"]
    lines += [f"| {code} | {meaning} |" for code, meaning in EXIT_CODES.items()]
    return "\n".join(lines) + "\n"


def commands(group: Any) -> Iterator[tuple[str, Any]]:
    """Iterate over all commands; those of a system by their words: `playlist admin add`."""
    for name, command in group.commands.items():
        if not isinstance(command, SystemGroup):
            yield name, command
            continue
        context = typer.Context(command)
        for inner in command.list_commands(context):
            found: Any = command.get_command(context, inner)
            nested = getattr(found, "commands", None)
            if nested is None:
                yield f"{name} {inner}", found
            else:
                yield from ((f"{name} {inner} {each}", nested[each]) for each in nested)


LIMITED = ("", ".requests", ".http", ".nats", ".auth", ".operations", ".service", ".search")
"""Packages with limits, below `keyhouse`, in the order of the page."""


def limits_list() -> str:
    """Return a Markdown list of the limits, each with its value and its docstring."""
    lines: list[str] = []
    for package in LIMITED:
        lines += _limit_lines(import_module(f"keyhouse{package}.limits"), "")
    for name in system_names():
        if (module := load_system(name).limits) is not None:
            lines += _limit_lines(module, f"{name}.")
    return "\n".join(lines)


def operations_table() -> str:
    """Return a Markdown table of the operations of a served schema."""
    lines = ["| operation | HTTP | works on | scope | in a batch |", "|---|---|---|---|---|"]
    for verb in sorted(VERBS, key=lambda verb: OPERATIONS.index(verb.name)):
        if not verb.http:
            continue
        [kind, *others] = verb.kinds or ("space",)
        path = verb.http if others else verb.http.replace("{name}", f"{{{kind}}}")
        path = path.replace("{kind}s", "records|counters|logs".replace("|", "\\|"))
        works_on = ", ".join([kind, *others])
        batch = "yes" if verb.batch is not None else ""
        lines.append(f"| `{verb.name}` | `{path}` | {works_on} | {verb.access} | {batch} |")
    return "\n".join(lines)


def _limit_lines(module: ModuleType, prefix: str) -> Iterator[str]:
    body = ast.parse(Path(str(module.__file__)).read_text()).body
    for node, after in pairwise(body):
        match node, after:
            case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(
                value=ast.Constant(value=str(doc))
            ):
                item = f"`{prefix}{name}`: {getattr(module, name):,}. {prose(doc)}"
                yield from _item(item)


def engines_table() -> str:
    """Return the capabilities that each engine declares, without a server or a file."""
    rows = [
        "| engine | durable | shared | snapshots | binary | rows in a commit | bytes in a commit |",
        "|---|---|---|---|---|---|---|",
    ]
    rows += [
        _engine_row(import_module(f"keyhouse.engines.{module}").CAPABILITIES) for module in _ENGINES
    ]
    return "\n".join(rows)


def _engine_row(each: Capabilities) -> str:
    flags = [
        "yes" if flag else "no" for flag in (each.durable, each.shared, each.snapshots, each.binary)
    ]
    limits = f"{each.commit_rows_max:,} | {each.commit_bytes_max:,}"
    return f"| {each.name} | {' | '.join(flags)} | {limits} |"


def _command(name: str, command: Any) -> list[str]:
    arguments = [
        parameter for parameter in command.params if parameter.param_type_name == "argument"
    ]
    options = [
        parameter
        for parameter in command.params
        if parameter.param_type_name == "option" and not parameter.hidden
    ]
    names = [
        text if argument.required else f"[{text}]"
        for argument in arguments
        for text in [argument.metavar or argument.name.upper()]
    ]
    usage = " ".join(["keyhouse", name, *names, "[OPTIONS]"])
    text, _, example = command.help.partition("\b\nExamples:\n")
    lines = [f"## keyhouse {name}\n", f"```sh\n{usage}\n```\n", _wrapped(prose(text)) + "\n"]
    lines += [f"```sh\n{cleandoc(example)}\n```\n"] if example else []
    lines += (
        [f"![The output of keyhouse {name} on a terminal](screens/{name}.svg)\n"]
        if name in SCREENS
        else []
    )
    for argument in arguments:
        lines += _item(f"`{argument.metavar or argument.name.upper()}`: {argument.help}")
    for option in options:
        lines += _item(f"`{_option(option)}`: {option.help}")
    return [*lines, ""]


def _wrapped(text: str) -> str:
    """Return paragraphs, wrapped. Code and tables stay as they are."""
    return "\n\n".join(
        each if each.startswith(("    ", "|")) else textwrap.fill(each, 100, break_on_hyphens=False)
        for each in text.split("\n\n")
    )


def _option(option: Any) -> str:
    return ", ".join(option.opts) + (
        "" if option.is_flag else f" {option.metavar or option.name.upper()}"
    )


def _keyspace_page(name: str) -> str:
    system = load_system(name)
    page = document(
        system.title,
        prose(system.doc).partition("\n")[0],
        [describe(schema) for schema in system.schemas],
    )
    title, _, rest = page.partition("\n")
    about = f"The output of `keyhouse describe {name}`; see also [the system](README.md)."
    diagram = (
        f"## Diagram\n\n```mermaid\n{mermaid([describe(schema) for schema in system.schemas])}```\n"
    )
    return f"{title}: the keyspace\n\n{_NOTE}\n{about}\n{rest}\n{diagram}"


def _with_generated(page: str, name: str, text: str) -> str:
    part = re.compile(rf"(<!-- made: {name} -->\n).*?(<!-- end -->)", re.DOTALL)
    return part.sub(lambda match: match[1] + text + "\n" + match[2], page)


def settings_lists() -> str:
    """Return the settings of the program, of HTTP, of one's own schema, here called `recipes`, and
    of each system with a service."""
    parts = [_settings_list(ServerSettings, "")]
    parts += ["### The table `[http]`\n", _settings_list(HttpSettings, "http")]
    parts += [
        "### The table of your own schema\n",
        'It has the name of the schema: `[recipes]` for `Schema("recipes", …)`, which cannot be the'
        "\nname of a setting, such as `data`.\n",
        _settings_list(SchemaSettings, "recipes"),
    ]
    for name in system_names():
        kind = load_service(name).settings if has_service(name) else None
        if kind is not None:
            parts += [f"### The table `[{name}]`\n", _settings_list(kind, name)]
    return "\n".join(parts).rstrip("\n")


def _settings_list(kind: type[msgspec.Struct], table: str) -> str:
    prefix = f"KEYHOUSE_{table.upper()}_" if table else "KEYHOUSE_"
    lines: list[str] = []
    for field in msgspec.structs.fields(kind):
        names = [_FLAGS[field.name]] if field.name in _FLAGS and not table else []
        names.append(f"`{prefix}{field.name.upper()}`")
        default = f"; default {text}" if (text := _default(field)) else ""
        lines += _item(f"`{field.name}` ({', '.join(names)}{default}): {_about(field.type)}")
    return "\n".join(lines) + "\n"


def _item(text: str) -> list[str]:
    """Return a list item, wrapped."""
    return textwrap.wrap(f"- {text}", 100, subsequent_indent="  ", break_on_hyphens=False)


def _about(kind: Any) -> str:
    """Return the description of a setting, and its choices."""
    texts = [
        meta.description
        for meta in getattr(kind, "__metadata__", ())
        if getattr(meta, "description", None)
    ]
    bare = getattr(kind, "__origin__", kind) if hasattr(kind, "__metadata__") else kind
    choices = " ".join(f"`{choice}`" for choice in get_args(bare)) if _is_choice(bare) else ""
    return " ".join([*texts, *([f"One of {choices}."] if choices else [])])


def _is_choice(kind: Any) -> bool:
    return str(get_origin(kind)) == "typing.Literal"


def _default(field: Any) -> str:
    default = field.default
    if default in (None, (), "", msgspec.NODEFAULT):
        return ""
    if isinstance(default, tuple):
        return " ".join(f"`{each}`" for each in default)
    return f"`{str(default).lower() if isinstance(default, bool) else default}`"


def main() -> None:
    docs = Path("docs")
    if not docs.is_dir():
        sys.exit("No docs/ folder: run this in the repository, as `make docs` does.")
    for path, text in pages(docs).items():
        if not path.exists() or path.read_text() != text:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
            print(f"Wrote {path}")


if __name__ == "__main__":
    main()
