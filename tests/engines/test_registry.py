"""Engines by URL, and what a wrong URL is told."""

import asyncio
import sys
from pathlib import Path

import pytest

from keyhouse.clock import Clock, ManualClock, SystemClock
from keyhouse.engine import Engine
from keyhouse.engines.registry import open_engine
from keyhouse.errors import UsageError


def opened(url: str, clock: Clock | None = None) -> Engine:
    return asyncio.run(open_engine(url, clock=clock))


@pytest.mark.parametrize("url", ["memory:", "memory://"])
def test_memory_is_an_engine_without_a_name(url: str) -> None:
    engine = opened(url)
    assert engine.capabilities.name == "memory"
    assert isinstance(engine.clock, SystemClock)


@pytest.mark.parametrize("url", ["sqlite:rows.db", "sqlite:./rows.db", "sqlite:///rows.db"])
def test_a_sqlite_path_starts_in_the_working_directory(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    engine = opened(url)
    assert engine.capabilities.name == "sqlite"
    assert (tmp_path / "rows.db").is_file()
    asyncio.run(engine.close())


@pytest.mark.parametrize("prefix", ["sqlite:", "sqlite:///"])
def test_a_sqlite_path_may_start_at_the_root(prefix: str, tmp_path: Path) -> None:
    clock = ManualClock()
    engine = opened(f"{prefix}{tmp_path}/a b%20.db", clock=clock)
    assert engine.clock is clock
    assert (tmp_path / "a b%20.db").is_file()
    asyncio.run(engine.close())


@pytest.mark.parametrize("url", ["", "rows.db", "redis://localhost", "SQLITE:rows.db", "/rows.db"])
def test_an_unknown_scheme_is_refused_with_those_that_are_known(url: str) -> None:
    with pytest.raises(UsageError) as refusal:
        opened(url)
    assert refusal.value.fields == {
        "url": url,
        "known": [
            "dynamodb",
            "memory",
            "nats",
            "postgres",
            "postgresql",
            "rocksdb",
            "sqlite",
            "tls",
        ],
    }


@pytest.mark.parametrize(
    "url", ["sqlite:", "sqlite://", "sqlite:///", "sqlite://host/rows.db", "sqlite::memory:"]
)
def test_a_sqlite_url_without_a_file_is_refused(url: str) -> None:
    with pytest.raises(UsageError, match="names a file"):
        opened(url)


def test_a_memory_url_with_a_name_is_refused() -> None:
    with pytest.raises(UsageError, match="no name"):
        opened("memory:rows")


def test_a_missing_driver_is_named_with_the_extra_that_brings_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [name for name in sys.modules if name.startswith("keyhouse.engines.sqlite")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "apsw", None)
    with pytest.raises(ImportError, match=r"keyhouse\[sqlite\]"):
        opened(f"sqlite:{tmp_path}/rows.db")


@pytest.mark.parametrize(
    ("url", "told"),
    [
        ("sqlite:rows.db?Layout=rosey", "one setting"),
        ("sqlite:rows.db?layout=rosey&sync=off", "one setting"),
        ("rocksdb:rows?sync=always", "no settings"),
        ("postgresql://ann@127.0.0.1:99999/rows", "A PostgreSQL URL is"),
        ("nats://127.0.0.1:99999", "Invalid NATS URL"),
        ("nats://127.0.0.1:port", "Invalid NATS URL"),
        ("nats://[::1/?bucket=rows", "Invalid NATS URL"),
        ("nats://127.0.0.1:1/?credentials=gone.creds", "The credentials file can't be opened"),
    ],
)
def test_a_slip_in_a_url_is_told_and_makes_nothing(
    url: str, told: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A setting that is misspelled is no part of a file's name, and no slip ends in the driver's own error."""
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError, match=told):
        opened(url)
    assert not list(tmp_path.iterdir())


def test_a_credentials_file_says_what_it_needs_to_be_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "some.creds").write_text("signed by a key of its own")
    monkeypatch.setitem(sys.modules, "nkeys", None)
    with pytest.raises(ImportError, match=r"pip install 'nats-py\[nkeys\]'"):
        opened(f"nats://127.0.0.1:1/?credentials={tmp_path}/some.creds")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "a password",
        "-----BEGIN NATS USER JWT-----\neyJ0\n",
        f"SA{'A3RJ' * 14}",
    ],
)
def test_a_file_without_a_users_credentials_is_told_and_not_shown(
    text: str, tmp_path: Path
) -> None:
    (tmp_path / "some.creds").write_text(text)
    with pytest.raises(UsageError, match="The file holds no credentials of a NATS user") as told:
        opened(f"nats://127.0.0.1:1/?credentials={tmp_path}/some.creds")
    assert not text or text not in str(told.value)
