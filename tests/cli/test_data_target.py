"""Which store and space the data commands use: options, environment, settings and layouts."""

import json
import os
from pathlib import Path

import pytest

from tests.cli.support.board import BOARD, STORE
from tests.support.program import run


def test_the_environment_names_store_and_space(folder: Path) -> None:
    environment = {"KEYHOUSE_STORE": "sqlite:clips.db", "KEYHOUSE_SPACE": "channel-7"}
    assert run("count", BOARD, cwd=folder, environment=environment).stdout == "5\n"
    assert (
        run("count", BOARD, "--space", "other", cwd=folder, environment=environment).stdout == "0\n"
    )
    assert (
        "revision" in run("explain", BOARD, "clip:goal", cwd=folder, environment=environment).stdout
    )
    without = {"KEYHOUSE_STORE": "sqlite:clips.db"}
    assert "clip:{id}" in run("explain", BOARD, "clip:goal", cwd=folder, environment=without).stdout


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("list", BOARD), "Name the store"),
        (("get", BOARD, "clip:goal"), "Name the store"),
        (
            ("delete", BOARD, "--prefix", "clip:", "--store", "sqlite:gone.db"),
            "Name the space",
        ),
        (
            ("list", BOARD, "--store", "sqlite:clips.db"),
            "Name the space: --space NAME. (space_is='a channel')",
        ),
        (("list", BOARD, "--store", "clips.db"), "name its engine, as in sqlite:data.db"),
        (("spaces", "--store", "http://host"), "needs the store itself, not a service"),
        (("verify", BOARD, "--store", "nats://host:4222"), "nats://host:4222/?bucket=NAME"),
        (("list", "playlist", "--store", "sqlite:clips.db"), "spaces=['kryten_"),
        (
            (
                "get",
                "streamkit",
                "cust_1_streamkit_notes_a",
                "--space",
                "2",
                "--store",
                "sqlite:clips.db",
            ),
            "another space",
        ),
        (("list", BOARD, "\udcff", *STORE), "not valid UTF-8"),
        (("list", BOARD, "--store", "sqlite:gone.db", "--space", "a"), "The file does not exist"),
        (
            ("watch", BOARD, "--since", "1000", *STORE),
            "keyhouse: That revision is newer than the newest one: the store was restored",
        ),
    ],
)
def test_an_unclear_target_is_rejected_with_advice(
    folder: Path, arguments: tuple[str, ...], words: str
) -> None:
    assert words in run(*arguments, cwd=folder, code=1).stderr


@pytest.mark.parametrize("host", ["[", "h:x", "h:99999"])
@pytest.mark.parametrize(
    "url",
    [
        *("http://{}", "https://{}", "http://h?{}", "http://h#{}", "http://?{}"),
        *("nats://{}/?bucket=b", "tls://{}/?bucket=b", "dynamodb://{}"),
    ],
)
def test_a_malformed_url_is_rejected_with_advice(url: str, host: str, tmp_path: Path) -> None:
    """Some of them ended commands with a traceback, and a query was sent as part of a path."""
    named = {"KEYHOUSE_STORE": url.format(host), "KEYHOUSE_TOKEN": "t"}
    refused = run("list", "streamkit", "--space", "1", cwd=tmp_path, environment=named, code=1)
    assert refused.stderr.startswith("keyhouse: Invalid"), refused.stderr


def test_a_key_that_contains_its_space_needs_no_option(tmp_path: Path) -> None:
    key, where = "cust_12345_streamkit_notes_stream-ideas", ("--store", "sqlite:s.db")
    value = '{"title": "Ideas", "content": "x"}'
    assert (
        "in the space `12345`" in run("put", "streamkit", key, value, *where, cwd=tmp_path).stdout
    )
    assert json.loads(run("get", "streamkit", key, *where, cwd=tmp_path).stdout)["title"] == "Ideas"


def test_commands_find_the_store_by_the_settings_of_serve(tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir()
    run("put", "rosey", "theme", "1", "--space", "trivia", "--store", str(data), cwd=tmp_path)
    assert [path.name for path in data.glob("*.db")] == ["rosey.db"]
    (tmp_path / "keyhouse.toml").write_text('data = "data"\nhttp = "off"\n')
    assert run("spaces", "rosey", cwd=tmp_path).stdout == "trivia\n"
    assert "name the system" in run("spaces", "--store", "data", cwd=tmp_path, code=1).stderr
    assert "or a system with --store FOLDER" in run("spaces", cwd=tmp_path, code=1).stderr
    (tmp_path / "keyhouse.toml").write_text("data = ")
    assert (
        "The settings file is not valid TOML" in run("spaces", "rosey", cwd=tmp_path, code=1).stderr
    )


def test_serve_and_commands_use_the_same_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from keyhouse.cli.target import find_store_url
    from keyhouse.service.registry import system_names
    from keyhouse.settings.engine_urls import default_url, url_of
    from keyhouse.settings.sources import load_settings

    monkeypatch.chdir(tmp_path)
    for variable in [name for name in os.environ if name.startswith("KEYHOUSE_")]:
        monkeypatch.delenv(variable)
    assert find_store_url("rosey", None) is None
    for settings, environment in (
        ('data = "d"', {}),
        ('engine = "sqlite:all.db"', {}),
        ('engine = "rocksdb:all"\n[rosey]\nengine = "sqlite:own.db"', {}),
        (
            'engine = "sqlite:all.db"',
            {"KEYHOUSE_ENGINE": "rocksdb:here", "KEYHOUSE_STREAMKIT_ENGINE": "memory:"},
        ),
        ('data = "d"', {"KEYHOUSE_DATA": "e"}),
    ):
        (tmp_path / "keyhouse.toml").write_text(settings)
        given = load_settings({}, environment, None, systems=system_names())
        with monkeypatch.context() as patch:
            for name, value in environment.items():
                patch.setenv(name, value)
            for system in ("rosey", "streamkit", "history"):
                own, shared = given.engines.get(system), given.settings.engine
                expected = url_of(system, own, alone=True) if own else None
                expected = expected or (url_of(system, shared, alone=False) if shared else None)
                assert find_store_url(system, None) == (
                    expected or default_url(system, Path(given.settings.data))
                )


def test_the_tables_of_a_layout_do_not_look_like_an_empty_store(tmp_path: Path) -> None:
    """It printed no rows, and created other tables."""
    run(
        "put",
        "rosey",
        "theme",
        "1",
        "--space",
        "trivia",
        "--store",
        "sqlite:bot.db?layout=rosey",
        cwd=tmp_path,
    )
    before = (tmp_path / "bot.db").read_bytes()
    ran = run(
        "list", "rosey", "--space", "trivia", "--store", "sqlite:bot.db", cwd=tmp_path, code=1
    )
    assert "?layout=NAME" in ran.stderr and "plugin_kv_storage" in ran.stderr
    assert (tmp_path / "bot.db").read_bytes() == before


def test_a_file_without_a_layout_does_not_look_like_an_empty_service(tmp_path: Path) -> None:
    """The service created its own tables beside the rows, and served none of them."""
    plain, named = "sqlite:bot.db", "sqlite:bot.db?layout=rosey"
    put = ("put", "rosey", "theme", "1", "--space", "trivia", "--store")
    run(*put, plain, cwd=tmp_path)
    before = (tmp_path / "bot.db").read_bytes()
    for command in (put, ("list", "rosey", "--space", "trivia", "--store")):
        ran = run(*command, named, cwd=tmp_path, code=1)
        assert "written without a layout" in ran.stderr and "keyhouse move" in ran.stderr
    served = run(
        "serve", "audiobooks", "--engine", plain, "--http", "127.0.0.1:0", cwd=tmp_path, code=1
    )
    assert "written without a layout" in served.stderr
    assert (tmp_path / "bot.db").read_bytes() == before


def test_a_write_without_the_layout_of_the_file_creates_no_second_store(tmp_path: Path) -> None:
    put = ("put", "rosey", "theme", "1", "--space", "trivia", "--store")
    run(*put, "sqlite:bot.db?layout=rosey", cwd=tmp_path)
    before = (tmp_path / "bot.db").read_bytes()
    ran = run(*put, "sqlite:bot.db", cwd=tmp_path, code=1)
    assert "?layout=NAME" in ran.stderr
    assert (tmp_path / "bot.db").read_bytes() == before
