"""Paths in a settings file are relative to the file; those of flags and variables are not."""

from pathlib import Path
from typing import Any

import msgspec
import pytest

from keyhouse.settings import read_settings
from keyhouse.settings.settings import ServerSettings
from keyhouse.settings.sources import load_settings
from tests.settings.test_misspelled_settings import TABLES

FILES = {"data": "d", "pages": "p", "nats_credentials": "c", "jwks": "j", "key_ring": "k"}
"""Settings that are a file or a folder, with a value."""


def paths(kind: type[msgspec.Struct]) -> list[str]:
    """Return the settings that are paths."""
    found = []
    for field in msgspec.structs.fields(kind):
        metadata: Any = getattr(field.type, "__metadata__", ())
        if any(each.extra and each.extra.get("path") for each in metadata):
            found.append(field.name)
    return found


MARKED = [(table, name) for table, kind in TABLES.items() for name in paths(kind)]


def test_all_settings_that_are_paths_are_known() -> None:
    assert {name for _, name in MARKED} == {*FILES, "covers", "engine", "roots"}
    assert {name for table, name in MARKED if not table} == {
        "data",
        "engine",
        "pages",
        "nats_credentials",
    }


@pytest.mark.parametrize(("table", "name"), MARKED)
def test_a_relative_path_is_relative_to_its_file(table: str, name: str, tmp_path: Path) -> None:
    """A `data` in a file elsewhere was relative to the working directory."""
    below = str(tmp_path / "etc" / "x")
    values = {"engine": ("sqlite:x", f"sqlite:{below}"), "roots": (["x"], (below,))}
    given, expected = values.get(name, ("x", below))
    file = tmp_path / "etc" / "keyhouse.toml"
    file.parent.mkdir()
    text = f"{name} = {msgspec.json.encode(given).decode()}\n"
    if name == "jwks":
        text += 'jwt_algorithm = "RS256"\n'
    file.write_text(f"[{table}]\n{text}" if table else text)
    names = [each for each in TABLES if each not in ("", "http", "studio")]
    loaded = load_settings({}, {}, file, systems=names)
    settings: Any = loaded.settings
    if table:
        settings = read_settings(TABLES[table], loaded.tables[table], table=table)
    assert getattr(settings, name) == expected
    environment = {"KEYHOUSE_CONFIG": str(file)}
    assert load_settings({}, environment, None, systems=names) == loaded
    if not table:
        flagged = load_settings({name: "sqlite:y"}, environment, None, systems=names).settings
        assert getattr(flagged, name) == "sqlite:y"


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("sqlite:rows.db", "sqlite:{}/rows.db"),
        ("sqlite:///rows.db", "sqlite:{}/rows.db"),
        ("sqlite:////var/rows.db", "sqlite:/var/rows.db"),
        ("sqlite:/var/rows.db", "sqlite:/var/rows.db"),
        ("rocksdb:rows", "rocksdb:{}/rows"),
        ("memory:", "memory:"),
        ("nats:", "nats:"),
        ("postgresql://host/db", "postgresql://host/db"),
        ("dynamodb://table", "dynamodb://table"),
    ],
)
@pytest.mark.parametrize("table", ["", "rosey"])
def test_the_file_of_an_engine_url_is_relative_to_the_settings_file(
    url: str, expected: str, table: str, tmp_path: Path
) -> None:
    file = tmp_path / "keyhouse.toml"
    file.write_text(f"[{table}]\nengine = {url!r}\n" if table else f"engine = {url!r}\n")
    loaded = load_settings({}, {}, file, systems=["rosey"])
    found = loaded.engines["rosey"] if table else loaded.settings.engine
    assert found == expected.format(tmp_path)


def test_a_url_and_a_text_stay_as_they_are(tmp_path: Path) -> None:
    file = tmp_path / "keyhouse.toml"
    file.write_text(
        'systems = ["a:B"]\n[recipes]\njwt_algorithm = "RS256"\njwks = "https://host/keys"\n'
        'key_ring = \'{"a": "b"}\'\n'
    )
    loaded = load_settings({}, {}, file, systems=["recipes"])
    settings: Any = read_settings(TABLES["recipes"], loaded.tables["recipes"], table="recipes")
    assert (settings.jwks, settings.key_ring) == ("https://host/keys", '{"a": "b"}')
    assert loaded.settings.systems == ("a:B",) and loaded.settings.data == "keyhouse-data"
    assert type(loaded.settings.data) is str is type(settings.jwks)


def test_the_file_of_the_working_directory_keeps_relative_paths(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "keyhouse.toml").write_text('data = "d"\n')
    assert load_settings({}, {}, None, systems=[]).settings.data == "d"
    assert load_settings({}, {}, Path("keyhouse.toml"), systems=[]).settings.data == "d"
    assert isinstance(ServerSettings().data, str)
