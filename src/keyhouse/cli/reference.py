"""`python -m keyhouse.cli.reference`, or `make docs`: writes what in docs/ is made from the code.

Whole pages are docs/cli.md and docs/systems/<name>-keyspace.md. In pages that people write, what stands between
`<!-- made: name -->` and `<!-- end -->` is made: the tables of limits, engines and settings. A test holds all of it current.
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
from typing import Any

import typer

from keyhouse import limits
from keyhouse.cli.app import app
from keyhouse.cli.diagram import mermaid
from keyhouse.cli.entry import EXIT_CODES
from keyhouse.cli.markdown import document
from keyhouse.cli.screens import SCREENS
from keyhouse.cli.settings import settings_tables
from keyhouse.engine import Capabilities
from keyhouse.schema.description import describe, prose
from keyhouse.systems.registry import NAMES, load_system

_NOTE = "<!-- Made by `make docs` from the code: change it there. -->\n"

_ENGINES = (
    "memory",
    "sqlite.engine",
    "postgres.engine",
    "rocksdb.engine",
    "jetstream.engine",
    "dynamodb.engine",
)
"""Where each engine's `CAPABILITIES` are. Imported when the page is made: they bring their drivers."""

_ABOUT = """\
Commands name what they work on in one way. The **system** is the first argument: one of the five, or a schema of your own
as `module:NAME`. A **key** is written as it is stored. The **store** is `--store URL`, or `--data DIR` for the folder of
`keyhouse serve`; the **space** is `--space NAME`, and need not be said where the key names it. What is the same all day
goes into the environment: `KEYHOUSE_STORE` and `KEYHOUSE_SPACE`. An option goes before it. Where nothing is said, the rows
are where `keyhouse serve` keeps them by its own settings (`engine`, `data`, and the `engine` of a system), in the
environment or in `keyhouse.toml`.

Instead of a store, `get`, `put`, `delete`, `list`, `scan`, `count` and `watch` take a running **service**, from any machine
that reaches it: `--service nats://host:4222` for rosey (the plugin's user and password in the URL, if the server asks),
`--service http://host:8080` with `--token` for streamkit. In the environment these are `KEYHOUSE_SERVICE` and
`KEYHOUSE_TOKEN`, where a token is seen by fewer than on a command line. A face tells less than a store: what it does not
tell (the expiry of a plugin's value, the revisions in a list) is left out, and what it can't do is refused with what to do
instead. Streamkit's service has no watch, and knows a config by its type and id, at whichever version of its key; a
customer's list is its export. No service deletes many records at once. The customer is read from the token's claims
`customerId`, `userId` or `sub`.

A service need not stop to have its rows looked at: SQLite, PostgreSQL, NATS and DynamoDB may be opened beside it, and a
watch sees what it writes. A RocksDB folder belongs to one process: ask the service, or stop it.

It comes with the extra `cli`. `keyhouse --install-completion` adds completion to your shell. Every command has `--json`,
for programs; without it, output is for people: in colour on a terminal, plain in a pipe. An error goes to standard error as
one sentence with its fields, or as JSON with `--json`: see [errors](errors.md).
"""


def pages(docs: Path) -> dict[Path, str]:
    """Every page that is made, or holds something made, and what it should say."""
    made = {docs / "cli.md": command_page()}
    for name in NAMES:
        made[docs / "systems" / f"{name}-keyspace.md"] = _keyspace_page(name)
    for page, name, table in (
        ("limits.md", "limits", limits_list()),
        ("engines.md", "engines", engines_table()),
        ("serving.md", "settings", settings_tables()),
    ):
        made[docs / page] = _with_made((docs / page).read_text(), name, table)
    return made


def command_page() -> str:
    group: Any = typer.main.get_command(app)
    lines = ["# The command line\n", _NOTE, group.help.partition("\n\n")[0] + "\n", _ABOUT]
    for name, command in commands(group):
        lines += _command(name, command)
    lines += ["## Exit codes\n", "| code | meaning |", "|---|---|"]
    lines += [f"| {code} | {meaning} |" for code, meaning in EXIT_CODES.items()]
    return "\n".join(lines) + "\n"


def commands(group: Any) -> Iterator[tuple[str, Any]]:
    """Every command by its name; one of a group by both: `rosey acl`."""
    for name, command in group.commands.items():
        for inner, each in getattr(command, "commands", {"": command}).items():
            yield f"{name} {inner}".rstrip(), each


def limits_list() -> str:
    """Return a Markdown list of the limits, each with its value and its docstring."""
    lines = [*_limit_lines(limits, "")]
    for name in NAMES:
        if (module := load_system(name).limits) is not None:
            lines += _limit_lines(module, f"{name}.")
    return "\n".join(lines)


def _limit_lines(module: ModuleType, prefix: str) -> Iterator[str]:
    body = ast.parse(Path(str(module.__file__)).read_text()).body
    for node, after in pairwise(body):
        match node, after:
            case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(
                value=ast.Constant(value=str(doc))
            ):
                item = f"- `{prefix}{name}`: {getattr(module, name):,}. {prose(doc)}"
                yield from textwrap.wrap(item, 100, subsequent_indent="  ", break_on_hyphens=False)


def engines_table() -> str:
    """What each engine says of itself, without a server or a file."""
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
    return f"| {each.name} | {' | '.join(flags)} | {each.commit_rows_max:,} | {each.commit_bytes_max:,} |"


def _command(name: str, command: Any) -> list[str]:
    arguments = [
        parameter for parameter in command.params if parameter.param_type_name == "argument"
    ]
    options = [parameter for parameter in command.params if parameter.param_type_name == "option"]
    names = [
        name_.upper() if argument.required else f"[{name_.upper()}]"
        for argument in arguments
        for name_ in [argument.name]
    ]
    usage = " ".join(["keyhouse", name, *names, "[OPTIONS]"])
    told, _, shown = command.help.partition("\b\nExamples:\n")
    lines = [f"## keyhouse {name}\n", f"```sh\n{usage}\n```\n", prose(told) + "\n"]
    lines += [f"```sh\n{cleandoc(shown)}\n```\n"] if shown else []
    lines += (
        [f"![What keyhouse {name} shows on a terminal](screens/{name}.svg)\n"]
        if name in SCREENS
        else []
    )
    lines += ["| | |", "|---|---|"]
    lines += [f"| `{argument.name.upper()}` | {argument.help} |" for argument in arguments]
    lines += [f"| `{_option(option)}` | {option.help} |" for option in options]
    return [*lines, ""]


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
    about = f"This is what `keyhouse describe {name}` prints; [what it is]({name}.md)."
    drawn = (
        f"## Diagram\n\n```mermaid\n{mermaid([describe(schema) for schema in system.schemas])}```\n"
    )
    return f"{title}: the keyspace\n\n{_NOTE}\n{about}\n{rest}\n{drawn}"


def _with_made(page: str, name: str, text: str) -> str:
    made = re.compile(rf"(<!-- made: {name} -->\n).*?(<!-- end -->)", re.DOTALL)
    return made.sub(lambda found: found[1] + text + "\n" + found[2], page)


def main() -> None:
    docs = Path("docs")
    if not docs.is_dir():
        sys.exit("There is no docs/ here: run it in the repository, as `make docs` does.")
    for path, text in pages(docs).items():
        if not path.exists() or path.read_text() != text:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
            print(f"Wrote {path}")


if __name__ == "__main__":
    main()
