"""`--data DIR` finds the store where `keyhouse serve --data DIR` keeps it."""

from pathlib import Path

import pytest

from keyhouse.cli.target import find_store_url


@pytest.fixture(autouse=True)
def empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)  # without a keyhouse.toml


def test_data_names_the_systems_file_by_default() -> None:
    assert (find_store_url("rosey", None, Path("data")) or "").startswith("sqlite:data/rosey.db")


def test_data_with_an_engine_set_names_that_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    """`verify rosey --data DIR` looked for DIR/rosey.db while the service used RocksDB."""
    monkeypatch.setenv("KEYHOUSE_ENGINE", "rocksdb:rows")
    url = find_store_url("rosey", None, Path("data"))
    assert url is not None
    assert url.startswith("rocksdb:rows")
