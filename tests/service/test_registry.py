"""The systems by name: each is there, says what it is, and costs nothing until it is asked for."""

import subprocess
import sys

import pytest

from keyhouse.errors import UsageError
from keyhouse.service.registry import has_service, load_service, load_system, system_names


def test_the_registry_lists_the_five_systems() -> None:
    assert system_names() == ("audiobooks", "history", "playlist", "rosey", "streamkit")


@pytest.mark.parametrize("name", system_names())
def test_a_system_declares_its_title_doc_and_schemas(name: str) -> None:
    system = load_system(name)
    assert system.name == name
    assert system.title
    assert system.doc.lower().startswith(name)
    assert len(system.schemas) == (6 if name == "playlist" else 1)
    assert all(schema.doc for schema in system.schemas)
    assert load_system(name).schemas is system.schemas


def test_an_unknown_system_is_rejected_with_the_known_names() -> None:
    with pytest.raises(UsageError) as refused:
        load_system("rosie")
    assert refused.value.fields == {
        "system": "rosie",
        "nearest": "rosey",
        "known": list(system_names()),
    }


def test_a_system_is_imported_at_first_use() -> None:
    """A program that serves one system does not prove the declarations of five."""
    program = (
        "import sys; from keyhouse.service.registry import load_system; load_system('rosey');"
        "print(*(name for name in sys.modules"
        " if name.startswith('keyhouse_') and '.' not in name))"
    )
    ran = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert ran.stdout.split() == ["keyhouse_rosey"]


def test_serving_a_system_without_a_service_is_rejected() -> None:
    """It says what can be done with it, and which ones can be served."""
    without = [name for name in system_names() if not has_service(name)]
    for name in without:
        with pytest.raises(UsageError, match="can be stored, not served") as refused:
            load_service(name)
        assert refused.value.fields == {
            "system": name,
            "served": [name for name in system_names() if name not in without],
        }
    with pytest.raises(UsageError, match="No such system"):
        load_service("rosie")


def test_only_a_system_with_sealed_members_takes_a_key_ring() -> None:
    for name in system_names():
        settings = load_service(name).settings
        assert (name == "audiobooks") is ("key_ring" in settings.__struct_fields__), name


@pytest.mark.parametrize("name", [name for name in system_names() if has_service(name)])
def test_a_service_has_settings_and_a_build_function(name: str) -> None:
    assert callable(load_service(name))
