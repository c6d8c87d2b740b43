"""Output on a terminal: width, colours, confirmation, progress and Ctrl-C."""

import asyncio
import json
import re
from html import unescape
from pathlib import Path

import pytest
from rich.cells import cell_len

from keyhouse import Store, open_engine
from keyhouse.demo.clips import BOARD, fill
from keyhouse_rosey.schema import SCHEMAS, VALUE
from tests.docs.pages import DOCS
from tests.support.program import run
from tests.support.terminal import CTRL_C, on_terminal, plain
from tools.screens import SCREENS
from tools.screens import fill as fill_for_pictures
from tools.screens import terminal_output as shown_on_screen

NAME = "keyhouse.demo.clips:BOARD"
STORE = ("--store", "sqlite:clips.db", "--space", "channel-7")
BOT = ("--store", "sqlite:bot.db", "--space", "trivia")
NASTY = "a\x1b[31mred\x1b]0;title\x07\u202e\nb\x9b2J"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a board of two clips, and a bot with control characters in keys and values."""
    folder = tmp_path_factory.mktemp("terminal")

    async def write() -> None:
        engine = await open_engine(f"sqlite:{folder / 'clips.db'}")
        await fill(Store(BOARD, engine, "channel-7"))
        await engine.close()
        engine = await open_engine(f"sqlite:{folder / 'bot.db'}")
        store = Store(SCHEMAS[0], engine, "trivia")
        await store.put(VALUE, NASTY, key=NASTY)
        await store.put(VALUE, {"long": "x" * 500}, key="long-" + "k" * 100, ttl=3_600)
        await store.put(VALUE, "日本語" * 40, key="日本語" * 20)
        await engine.close()

    asyncio.run(write())
    return folder


def test_a_terminal_gets_colours_and_a_header(folder: Path) -> None:
    shown = on_terminal("list", NAME, *STORE, cwd=folder)
    assert "\x1b[" in shown
    lines = plain(shown).splitlines()
    assert lines[0].split() == ["key", "what", "revision", "expires"]
    assert lines[1].split() == ["clip:goal", "clip", "1"]
    assert any(line.split()[1:4] == ["index", "of", "clip"] for line in lines)


def test_a_space_without_rows_is_named_on_a_terminal_only(folder: Path) -> None:
    """A misspelled space printed nothing at all."""
    misspelled = ("--store", "sqlite:clips.db", "--space", "chanel-7")
    for command in ("list", "scan"):
        shown = plain(on_terminal(command, NAME, *misspelled, cwd=folder))
        assert "in the space `chanel-7`" in shown and "keyhouse spaces" in shown
        assert "No such rows" not in plain(on_terminal(command, NAME, *STORE, cwd=folder))
        piped = run(command, NAME, *misspelled, cwd=folder)
        assert (piped.stdout, piped.stderr) == ("", "")


def test_no_color_disables_all_escape_sequences(folder: Path) -> None:
    for arguments in (
        ("list", NAME),
        ("get", NAME, "clip:goal"),
        ("explain", NAME, "clip:goal"),
        ("stats", NAME),
    ):
        shown = on_terminal(*arguments, *STORE, cwd=folder, environment={"NO_COLOR": "1"})
        assert "\x1b" not in shown
        assert "clip" in shown


@pytest.mark.parametrize("columns", [24, 40, 80])
def test_no_line_is_wider_than_the_terminal(folder: Path, columns: int) -> None:
    for arguments in (
        ("list", "rosey"),
        ("scan", "rosey"),
        ("stats", "rosey"),
        ("explain", "rosey", "long-" + "k" * 100),
    ):
        shown = plain(on_terminal(*arguments, *BOT, cwd=folder, columns=columns))
        assert max(cell_len(line) for line in shown.splitlines()) <= columns, shown
        assert "long-" in shown or arguments[0] == "stats"


def test_stored_control_characters_do_not_reach_the_terminal(folder: Path) -> None:
    asked = [
        ("list", "rosey"),
        ("scan", "rosey"),
        ("get", "rosey", NASTY),
        ("explain", "rosey", NASTY),
    ]
    for arguments in (*asked, *((*words, "--json") for words in asked)):
        shown = on_terminal(*arguments, *BOT, cwd=folder, columns=200)
        assert (
            "\x1b]" not in shown
            and "\x07" not in shown
            and "\u202e" not in shown
            and "\x9b" not in shown
        )
        assert "\x1b[31mred" not in shown
        assert "red" in plain(shown)
    assert json.loads(run("get", "rosey", NASTY, *BOT, cwd=folder).stdout) == NASTY
    refused = run("get", "rosey", NASTY + "?", "--json", *BOT, cwd=folder, code=3).stderr
    assert (
        refused.rstrip("\n").isprintable() and json.loads(refused)["fields"]["key"] == NASTY + "?"
    )


def test_progress_stays_on_one_line(folder: Path) -> None:
    """However long the name of a space is: a wrapped line can't be overwritten."""
    store = ("--store", "sqlite:long.db")
    on_terminal("put", "rosey", "theme", "1", *store, "--space", "p" * 90, cwd=folder)
    for columns in (40, 80):
        shown = on_terminal("verify", "rosey", *store, cwd=folder, columns=columns)
        said = re.findall(r"(p+…)", shown)
        assert {len(each) for each in said} == {columns}


def test_get_prints_the_revision_below_the_value(folder: Path) -> None:
    shown = plain(on_terminal("get", NAME, "clip:goal", *STORE, cwd=folder))
    assert '"second": 754' in shown
    assert shown.rstrip().endswith("clip, revision 1")


def test_delete_asks_for_confirmation(tmp_path: Path) -> None:
    where = ("--store", "sqlite:bot.db", "--space", "trivia", "rosey")
    for key in ("theme", "game_1", "game_2"):
        run("put", *where, key, "1", cwd=tmp_path)
    question = "Delete theme and its derived rows in the space trivia of sqlite:bot.db? [y/N]: "
    shown = on_terminal(
        "delete", *where, "theme", cwd=tmp_path, columns=200, typed=[(question, "n\n")], code=1
    )
    assert "Nothing was changed." in shown
    shown = on_terminal(
        "delete", *where, "theme", cwd=tmp_path, columns=200, typed=[("[y/N]: ", CTRL_C)], code=130
    )
    assert "keyhouse: Stopped." in shown
    assert run("count", *where, cwd=tmp_path).stdout == "3\n"
    many = (
        "Delete 2 records (game_1, game_2) and their derived rows in the space trivia of "
        "sqlite:bot.db? [y/N]: "
    )
    shown = on_terminal(
        "delete", *where, "--prefix", "game_", cwd=tmp_path, columns=200, typed=[(many, "y\n")]
    )
    assert "Deleted 2 records" in shown
    assert run("list", *where, cwd=tmp_path).stdout == "theme\n"


def test_ctrl_c_stops_a_watch_with_one_line(folder: Path) -> None:
    shown = plain(
        on_terminal(
            "watch",
            NAME,
            *STORE,
            "--since",
            "0",
            cwd=folder,
            typed=[("kick-off", CTRL_C)],
            code=130,
        )
    )
    assert "Traceback" not in shown
    assert shown.splitlines()[-1].endswith("keyhouse: Stopped.")


def test_put_without_a_value_is_rejected(tmp_path: Path) -> None:
    shown = on_terminal("put", "rosey", "theme", *BOT, cwd=tmp_path, code=1, columns=200)
    assert "Give a value: as an argument, with --file, or on standard input." in shown
    refused = run("put", "rosey", "theme", *BOT, cwd=tmp_path, given="", code=1).stderr
    assert "Standard input is empty" in refused, "an empty pipe was called a truncated document"
    assert list(tmp_path.iterdir()) == []


def test_the_pictures_in_the_docs_match_the_output(tmp_path: Path) -> None:
    """Compares words, not pixels, which depend on the version of Rich. `make docs` updates them."""
    asyncio.run(fill_for_pictures(tmp_path))
    for name in ("list", "explain"):
        command, *rest = SCREENS[name]
        drawn = (DOCS / "screens" / f"{name}.svg").read_text()
        words = re.findall(r"[\w:{}-]+", unescape(re.sub(r"<[^>]*>", " ", drawn)))
        assert set(
            re.findall(r"[\w:{}-]+", plain(shown_on_screen(tmp_path, command, NAME, *rest)))
        ) <= set(words)
    assert {path.stem for path in (DOCS / "screens").glob("*.svg")} == set(SCREENS)
