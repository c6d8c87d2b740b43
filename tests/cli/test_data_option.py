"""Which store `--store` names: an engine, a service, or what `keyhouse serve` has in a folder."""

from pathlib import Path

import pytest

from keyhouse.cli.target import STORE, data_folder, find_service_url, find_store_url


@pytest.fixture(autouse=True)
def empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)  # without a keyhouse.toml


@pytest.mark.parametrize(
    ("store", "is_service"),
    [
        ("http://host:8080", True),
        ("https://host/songs", True),
        ("nats://user:password@host:4222", True),
        ("tls://host:4222/", True),
        ("nats://host:4222/?bucket=songs", False),
        ("nats://host/?replicas=3&prefix=", False),
        ("sqlite:data.db", False),
        ("postgresql://host/db", False),
    ],
)
def test_a_url_is_a_service_or_an_engine(
    store: str, is_service: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert find_service_url(store) == (store if is_service else None)
    assert data_folder(store) is None
    monkeypatch.setenv(STORE, store)
    assert find_service_url(None) == (store if is_service else None)
    if not is_service:
        assert find_store_url("rosey", None) == store


@pytest.mark.parametrize("store", ["data", "./a:b", "/srv/data", ".."])
def test_what_has_no_scheme_is_a_data_folder(store: str) -> None:
    assert data_folder(store) == Path(store)
    assert (find_store_url("rosey", store) or "").startswith(f"sqlite:{Path(store) / 'rosey'}.db")


def test_the_folder_of_serve_is_the_default_if_it_exists() -> None:
    assert find_store_url("rosey", None) is None
    Path("keyhouse-data").mkdir()
    assert (find_store_url("rosey", None) or "").startswith("sqlite:keyhouse-data/rosey.db")


def test_a_folder_with_an_engine_set_names_that_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    """`verify rosey` with a folder looked for its rosey.db while the service used RocksDB."""
    monkeypatch.setenv("KEYHOUSE_ENGINE", "rocksdb:rows")
    assert (find_store_url("rosey", "data") or "").startswith("rocksdb:rows")


def test_rows_on_a_nats_server_are_reached_with_the_credentials_of_the_settings(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """`serve` used them, and every command was rejected by the server."""
    monkeypatch.setenv("KEYHOUSE_ENGINE", "nats:")
    monkeypatch.setenv("KEYHOUSE_NATS", "nats://host:4222")
    monkeypatch.setenv("KEYHOUSE_NATS_CREDENTIALS", "user.creds")
    assert find_store_url("rosey", None) == (
        "nats://host:4222/?credentials=user.creds&bucket=rosey"
    )
