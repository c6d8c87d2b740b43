"""`get`, `put`, `delete`, `list`, `scan`, `count` and `watch` through a running service."""

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.serve.support.serve_process import Serving, environment, serving
from tests.support.program import run, started

NOTE = "cust_12345_streamkit_notes_ideas"


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    with serving(tmp_path_factory.mktemp("service"), "rosey", "streamkit") as served:
        yield served


@pytest.fixture(scope="module")
def token(service: Serving) -> str:
    folder = Path(service.log_path).parent
    return run(
        "token", "streamkit", "--customer", "12345", "--data", "data", cwd=folder
    ).stdout.strip()


def test_commands_use_plugin_storage_over_nats(service: Serving) -> None:
    at = ("--store", service.nats, "--space", "trivia")
    assert (
        run("put", "rosey", "theme", '"dark"', *at).stdout
        == "theme\n\nStored in the space `trivia`.\n"
    )
    put = run("put", "rosey", "score", "7", "--ttl", "1h", "--expect", "absent", *at).stdout
    assert put == "score\n\nStored in the space `trivia` at revision 2.\n"
    assert (
        "not at the expected revision"
        in run("put", "rosey", "score", "8", "--expect", "1", *at, code=4).stderr
    )
    assert run("get", "rosey", "theme", *at).stdout == '"dark"\n'
    assert json.loads(run("get", "rosey", "score", "--json", *at).stdout) == {
        "space": "trivia",
        "key": "score",
        "kind": "record",
        "record": "value",
        "revision": 2,
        "value": 7,
    }
    assert run("list", "rosey", *at).stdout == "score\ntheme\n"
    assert run("scan", "rosey", "--after", "score", *at).stdout == 'theme\t"dark"\n'
    assert run("count", "rosey", "th", *at).stdout == "1\n"
    assert "Deleted 1 record" in run("delete", "rosey", "theme", "--yes", *at).stdout
    assert "No row at this key" in run("get", "rosey", "theme", *at, code=3).stderr


def test_watch_through_a_service_prints_the_writes_of_others(service: Serving) -> None:
    at = ("--store", service.nats, "--space", "watched")
    with started("watch", "rosey", "--count", "1", *at, environment=environment()) as watching:
        first = watching.stderr.readline()  # its revision depends on other tests
        assert re.fullmatch(r"Watching watched after revision \d+\. Ctrl-C stops it\.\n", first)
        run("put", "rosey", "k", "1", *at)
        out, _ = watching.communicate()
    assert out.split("\t")[1:] == ["put", "k", "1\n"]
    assert (
        "newer than the newest" in run("watch", "rosey", "--since", "1000000", *at, code=1).stderr
    )


def test_unsupported_commands_of_plugin_storage_are_rejected_with_advice(service: Serving) -> None:
    at = ("--store", service.nats, "--space", "trivia")
    assert (
        "give a KEY, or the URL of the engine or the data folder as --store"
        in run("delete", "rosey", "--prefix", "a", "--yes", *at, code=1).stderr
    )
    assert (
        "name the engine or the data folder as --store"
        in run("list", "rosey", "--reverse", *at, code=1).stderr
    )
    none = ("--store", "nats://127.0.0.1:1", "--space", "trivia")
    assert (
        "No NATS server accepts this connection: start keyhouse serve, or name another."
        in run("get", "rosey", "k", *none, code=1).stderr
    )


def test_commands_use_configs_over_http(service: Serving, token: str) -> None:
    at = {"KEYHOUSE_STORE": service.http, "KEYHOUSE_TOKEN": token}
    assert (
        "at revision 1"
        in run("put", "streamkit", NOTE, '{"title": "Ideas", "content": ""}', environment=at).stdout
    )
    found = json.loads(run("get", "streamkit", NOTE, "--json", environment=at).stdout)
    assert (found["revision"], found["value"]["title"], found["expires"]) == (1, "Ideas", None)
    changed = '{"title": "Ideas", "content": "more"}'
    assert (
        "does not match If-Match"
        in run("put", "streamkit", NOTE, changed, "--expect", "9", environment=at, code=4).stderr
    )
    run("put", "streamkit", NOTE, changed, "--expect", "1", environment=at)
    assert run("list", "streamkit", environment=at).stdout == f"{NOTE}\n"  # whose, the token says
    refused = run("watch", "streamkit", "--space", "12345", environment=at, code=1)
    assert "with the engine or the data folder as --store" in refused.stderr
    absent = run("delete", "streamkit", NOTE, "--yes", "--expect", "absent", environment=at, code=1)
    assert "cannot expect an absent config" in absent.stderr  # it was deleted all the same
    assert "Deleted 1 record" in run("delete", "streamkit", NOTE, "--yes", environment=at).stdout


def test_a_key_of_another_customer_is_rejected(service: Serving, token: str) -> None:
    """The service reads the customer from the token: it would return the config of the wrong
    customer."""
    other = NOTE.replace("12345", "777")
    at = ("--store", service.http, "--token", token)
    refused = run("get", "streamkit", other, *at, code=1)
    assert "The token is another customer's. (customer='12345', space='777')" in refused.stderr


@pytest.mark.parametrize(
    ("arguments", "settings", "said"),
    [
        (
            ("verify", "rosey"),
            {"KEYHOUSE_STORE": "nats://x"},
            "needs the store itself, not a service",
        ),
        (
            ("list", "playlist", "--space", "kryten_playlist_likes", "--store", "http://x"),
            {},
            "The service requires a token",
        ),
        (("get", "rosey", "k", "--store", "http://x"), {}, "--store nats://host:4222"),
        (
            ("get", "rosey", "k", "--token", "t", "--store", "sqlite:a.db"),
            {},
            "--token is for a running service",
        ),
    ],
)
def test_an_invalid_service_is_rejected(
    arguments: tuple[str, ...], settings: dict[str, str], said: str, tmp_path: Path
) -> None:
    refused = run(*arguments, cwd=tmp_path, environment={"KEYHOUSE_SPACE": "s", **settings}, code=1)
    assert said in refused.stderr
    assert not list(tmp_path.iterdir())
