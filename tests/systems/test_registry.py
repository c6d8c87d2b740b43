"""The systems by name: each is there, says what it is, and costs nothing until it is asked for."""

import subprocess
import sys

import pytest

from keyhouse.errors import UsageError
from keyhouse.systems.registry import NAMES, has_service, load_service, load_system


def test_the_five_systems_are_there() -> None:
    assert NAMES == ("rosey", "streamkit", "audiobooks", "playlist", "history")


@pytest.mark.parametrize("name", NAMES)
def test_a_system_says_what_it_is_and_has_its_schemas(name: str) -> None:
    system = load_system(name)
    assert system.name == name
    assert system.title
    assert system.doc.lower().startswith(name)
    assert len(system.schemas) == (6 if name == "playlist" else 1)
    assert all(schema.doc for schema in system.schemas)
    assert load_system(name).schemas is system.schemas


def test_another_name_is_refused_with_the_names_there_are() -> None:
    with pytest.raises(UsageError) as refused:
        load_system("rosie")
    assert refused.value.fields == {"system": "rosie", "known": list(NAMES)}


def test_a_system_is_imported_when_it_is_asked_for() -> None:
    """A program that serves one system does not prove the declarations of five."""
    program = (
        "import sys; from keyhouse.systems.registry import load_system; load_system('rosey');"
        "print(*(name for name in sys.modules if name.startswith('keyhouse.systems.') and name.count('.') == 2))"
    )
    ran = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert ran.stdout.split() == ["keyhouse.systems.registry", "keyhouse.systems.rosey"]


def test_a_system_without_a_service_is_refused_when_it_is_to_be_served() -> None:
    """It says what can be done with it, and which ones can be served."""
    without = [name for name in NAMES if not has_service(name)]
    for name in without:
        with pytest.raises(UsageError, match="can be stored, not served") as refused:
            load_service(name)
        assert refused.value.fields == {
            "system": name,
            "served": [name for name in NAMES if name not in without],
        }
    with pytest.raises(UsageError, match="No such system"):
        load_service("rosie")


@pytest.mark.parametrize("name", [name for name in NAMES if has_service(name)])
def test_a_service_is_a_function_that_makes_its_part(name: str) -> None:
    assert callable(load_service(name).build)
