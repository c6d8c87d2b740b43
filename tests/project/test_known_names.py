"""An error of a misspelled name has the one that was probably meant, in every table of names that
a user types, and in every error that lists what is known.

An engine's URL, a type of key field, a command of a system and the members of a batch had a list of
known names, and not the nearest.
"""

import ast
import asyncio
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest
import typer
from click.testing import CliRunner, Result
from msgspec import Struct

from keyhouse import Counter, Index, Record, Schema, Space, Template, load_system, open_engine
from keyhouse.advice.nearest import nearest
from keyhouse.advice.rejected_members import rejected_member
from keyhouse.bench.run import CASES
from keyhouse.bench.text import parse_cases
from keyhouse.cli.app import app
from keyhouse.cli.options import OTHER_WORDS, Command
from keyhouse.cli.rows import GROUPS, key_filter
from keyhouse.engines.dynamodb.settings import OPTIONS as DYNAMODB_OPTIONS
from keyhouse.engines.dynamodb.settings import Settings as DynamoDBSettings
from keyhouse.engines.jetstream.settings import OPTIONS as NATS_OPTIONS
from keyhouse.engines.jetstream.settings import parse as parse_nats_url
from keyhouse.engines.registry import SCHEMES
from keyhouse.errors import KeyhouseError, NewerError, SealedError
from keyhouse.http.router import METHODS, Route
from keyhouse.keys.segments import NAMED, segment
from keyhouse.operations.batch import BatchOperation
from keyhouse.operations.catalog import Catalog
from keyhouse.service.registry import system_names
from keyhouse.service.tokens import mint_token
from keyhouse.studio.catalog import StudioSystem, SystemCatalog
from keyhouse_rosey.messages import OPERATIONS
from keyhouse_rosey.subjects import check_operation
from keyhouse_streamkit.keys import CATEGORIES, build_kv_key
from tests.project.package_source import package_sources
from tools.reference import commands

OTHER_MEANINGS = {NewerError.__name__, SealedError.__name__}
"""Errors whose `known` is a version or the id of a key."""


class Clip(Struct):
    id: str
    title: str


CLIP = Record(Clip, "clip:{id}", Index("idx:clip:title:{title}:{id}"))
VIEWS = Counter("views:{id}")
BOARD = Schema("clips", CLIP, VIEWS, space=Space("a streamer"))
TITLES = Template("idx:title:{title}")
RECORDS = [each.name for each in BOARD.records]
CATALOG = Catalog(BOARD, {})
STUDIO = SystemCatalog([StudioSystem(name=name) for name in system_names()])


async def opened(url: str) -> object:
    return await open_engine(url)


def scoped(scope: str) -> object:
    service = load_system("streamkit").service
    return mint_token(service, "streamkit", {}, Path(), "1", scopes=[scope], seconds=1)


async def handler() -> None: ...


TABLES: dict[str, tuple[Iterable[str], Callable[[str], object]]] = {
    "scheme of an engine URL": (SCHEMES, lambda name: asyncio.run(opened(f"{name}:x"))),
    "option of a NATS URL": (NATS_OPTIONS, lambda name: parse_nats_url(f"nats://h/?{name}=1")),
    "option of a DynamoDB URL": (
        DYNAMODB_OPTIONS,
        lambda name: DynamoDBSettings.of(f"dynamodb://table?{name}=1"),
    ),
    "type of a key field": (NAMED, segment),
    "field of a key": (TITLES.fields, lambda name: TITLES.build({name: "x"})),
    "system": (system_names(), load_system),
    "record of a schema": (RECORDS, BOARD.record),
    "record of a service": (RECORDS, lambda name: CATALOG.find("http", name)),
    "scope of a token": (load_system("streamkit").service.scopes, scoped),
    "category of streamkit": (CATEGORIES, lambda name: build_kv_key("1", name, "x")),
    "operation of rosey": (OPERATIONS, lambda name: check_operation(name, f"trivia.{name}")),
    "case of bench": (CASES, parse_cases),
    "--type of a command": ([*GROUPS, "clip", "views"], lambda name: key_filter(BOARD, name)),
    "method of a route": (METHODS, lambda name: Route(method=name, path="/", handler=handler)),
    "system of the Studio": (system_names(), STUDIO.system),
}


def misspelled(name: str) -> Iterable[str]:
    """Yield the name with a letter left out, doubled, and with two swapped."""
    at = len(name) // 2
    yield name[:at] + name[at + 1 :]
    yield name[:at] + name[at] + name[at:]
    yield name[: at - 1] + name[at] + name[at - 1] + name[at + 1 :]


@pytest.mark.parametrize("table", TABLES)
def test_a_misspelled_name_of_a_table_comes_with_the_nearest(table: str) -> None:
    known, use = TABLES[table]
    names = [name for name in known if len(name) > 3]
    assert names, table
    for name in names:
        for wrong in misspelled(name):
            if wrong in known:
                continue
            with pytest.raises(KeyhouseError) as raised:
                use(wrong)
            assert raised.value.fields.get("nearest") == name, (wrong, str(raised.value))


def test_a_misspelled_member_or_verb_of_a_batch_comes_with_the_nearest() -> None:
    for name in BatchOperation.__struct_fields__:
        for wrong in misspelled(name) if len(name) > 3 else ():
            assert rejected_member(BatchOperation, {"op": "put", wrong: 1})["nearest"] == name
    for verb in ("patch", "delete", "check", "append"):
        for wrong in misspelled(verb):
            rejected = rejected_member(BatchOperation, {"op": wrong})
            assert (rejected["member"], rejected["value"]) == ("op", wrong)
            assert rejected["nearest"] == verb


def test_a_name_in_another_case_is_near() -> None:
    assert nearest("ULID", ["text", "ulid"]) == {"nearest": "ulid", "known": ["text", "ulid"]}


PROGRAM: Any = typer.main.get_command(app)
"""Its class is of typer's own copy of click, which the runner of click takes too."""

COMMANDS = dict(commands(PROGRAM))


def invoke(*arguments: str) -> Result:
    """Run the program, whose tree of commands is made once: it takes longer than a command."""
    return CliRunner().invoke(PROGRAM, arguments)


@pytest.mark.parametrize("name", COMMANDS)
def test_a_misspelled_option_of_a_command_comes_with_the_nearest(name: str) -> None:
    own = [option for each in COMMANDS[name].params for option in each.opts if option[:2] == "--"]
    for option in own:
        wrong = option[:-2] + option[-1]
        if len(option) > len("--data") and wrong not in own:
            shown = invoke(*name.split(), wrong)
            assert option in shown.output.rpartition("No such option")[2], shown.output


@pytest.mark.parametrize(
    "name", [name for name, each in COMMANDS.items() if isinstance(each, Command)]
)
def test_an_option_by_the_word_of_other_programs_comes_with_the_one_here(name: str) -> None:
    """`serve --port 90` and `token --tenant blue` were "No such option", and no more."""
    own = {option for each in COMMANDS[name].params for option in each.opts}
    for word, meant in OTHER_WORDS.items():
        if meant in own and word not in own:
            for arguments in ([word, "x"], [f"{word}=x"]):
                shown = invoke(*name.split(), *arguments)
                assert shown.exit_code == 2 and f"Did you mean {meant}?" in shown.output, word


def test_every_word_of_other_programs_is_for_an_option_of_some_command() -> None:
    shared = [each for each in COMMANDS.values() if isinstance(each, Command)]
    own = {option for each in shared for one in each.params for option in one.opts}
    assert set(OTHER_WORDS.values()) <= own


@pytest.mark.parametrize("name", [*COMMANDS])
def test_a_misspelled_command_comes_with_the_nearest(name: str) -> None:
    """A system's commands are imported when they are used: their group knew of none."""
    *group, command = name.split()
    wrong = command[:1] + command[2:]
    if len(command) > 3:
        shown = invoke(*group, wrong)
        assert shown.exit_code == 2 and repr(command) in shown.output, shown.output


def test_an_error_that_lists_what_is_known_has_the_nearest() -> None:
    """`known=` of an error is made by `nearest`, unless it is something else than names."""
    found = []
    for source in package_sources():
        for node in source.nodes:
            match node:
                case ast.Call(func=ast.Name(id=made), keywords=keywords) if made.endswith("Error"):
                    if made not in OTHER_MEANINGS and "known" in {each.arg for each in keywords}:
                        found.append(source.at(node.lineno))
    assert not found, f"write **nearest(name, known): {found}"
