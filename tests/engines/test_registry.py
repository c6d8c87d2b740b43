"""Opening engines by URL, and errors for invalid URLs."""

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
def test_the_memory_engine_has_no_name(url: str) -> None:
    engine = opened(url)
    assert engine.capabilities.name == "memory"
    assert isinstance(engine.clock, SystemClock)


@pytest.mark.parametrize("url", ["sqlite:rows.db", "sqlite:./rows.db", "sqlite:///rows.db"])
def test_a_sqlite_path_is_relative_to_the_working_directory(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    engine = opened(url)
    assert engine.capabilities.name == "sqlite"
    assert (tmp_path / "rows.db").is_file()
    asyncio.run(engine.close())


@pytest.mark.parametrize("prefix", ["sqlite:", "sqlite:///"])
def test_a_sqlite_path_may_be_absolute(prefix: str, tmp_path: Path) -> None:
    clock = ManualClock()
    engine = opened(f"{prefix}{tmp_path}/a b%20.db", clock=clock)
    assert engine.clock is clock
    assert (tmp_path / "a b%20.db").is_file()
    asyncio.run(engine.close())


@pytest.mark.parametrize("url", ["", "rows.db", "redis://localhost", "SQLITE:rows.db", "/rows.db"])
def test_an_unknown_scheme_is_rejected_with_the_known_ones(url: str) -> None:
    with pytest.raises(UsageError) as refusal:
        opened(url)
    near = {"nearest": "sqlite"} if url.startswith("SQLITE:") else {}
    assert refusal.value.fields == near | {
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


@pytest.mark.parametrize("url", ["sqlite:", "sqlite://", "sqlite:///", "sqlite://host/rows.db"])
def test_a_sqlite_url_without_a_file_is_rejected(url: str) -> None:
    with pytest.raises(UsageError, match="write sqlite:file"):
        opened(url)


def test_a_sqlite_url_in_memory_is_rejected_with_the_url_to_write() -> None:
    with pytest.raises(UsageError, match="for a store in memory write memory:"):
        opened("sqlite::memory:")


def test_a_memory_url_with_a_name_is_rejected() -> None:
    with pytest.raises(UsageError, match="no name"):
        opened("memory:rows")


def test_a_missing_driver_is_reported_with_its_extra(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [name for name in sys.modules if name.startswith("keyhouse.engines.sqlite")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "apsw", None)
    with pytest.raises(ImportError, match=r"\[sqlite\]"):
        opened(f"sqlite:{tmp_path}/rows.db")


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("sqlite:rows.db?Layout=rosey", "Unknown setting"),
        ("sqlite:rows.db?layout=rosey&sync=off", "Unknown setting"),
        ("rocksdb:rows?sync=always", "Unknown setting"),
        ("postgresql://ann@127.0.0.1:99999/rows", "Invalid PostgreSQL URL"),
        ("nats://127.0.0.1:99999", "Invalid NATS URL"),
        ("nats://127.0.0.1:port", "Invalid NATS URL"),
        ("nats://[::1/?bucket=rows", "Invalid NATS URL"),
        ("nats://127.0.0.1:1/?credentials=gone.creds", "The credentials file can't be opened"),
    ],
)
def test_an_invalid_url_is_rejected_and_creates_nothing(
    url: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A misspelled setting is not taken as part of a file name, and no driver error escapes."""
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError, match=message):
        opened(url)
    assert not list(tmp_path.iterdir())


def test_a_credentials_file_without_nkeys_names_the_extra(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "some.creds").write_text("signed by its own key")
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
def test_a_file_without_credentials_is_rejected_without_quoting_it(
    text: str, tmp_path: Path
) -> None:
    (tmp_path / "some.creds").write_text(text)
    with pytest.raises(
        UsageError, match="The file contains no credentials of a NATS user"
    ) as error_info:
        opened(f"nats://127.0.0.1:1/?credentials={tmp_path}/some.creds")
    assert not text or text not in str(error_info.value)
