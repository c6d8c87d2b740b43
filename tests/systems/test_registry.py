"""The systems by name: each is there, says what it is, and costs nothing until it is asked for."""

import subprocess
import sys

import pytest

from keyhouse.errors import UsageError
from keyhouse.systems.registry import NAMES, load


def test_the_five_systems_are_there() -> None:
    assert NAMES == ("rosey", "streamkit", "audiobooks", "playlist", "history")


@pytest.mark.parametrize("name", NAMES)
def test_a_system_says_what_it_is_and_has_its_schemas(name: str) -> None:
    system = load(name)
    assert system.name == name
    assert system.title
    assert system.doc.lower().startswith(name)
    assert len(system.schemas) == (6 if name == "playlist" else 1)
    assert all(schema.doc for schema in system.schemas)
    assert load(name).schemas is system.schemas


def test_another_name_is_refused_with_the_names_there_are() -> None:
    with pytest.raises(UsageError) as refused:
        load("rosie")
    assert refused.value.fields == {"system": "rosie", "known": list(NAMES)}


def test_a_system_is_imported_when_it_is_asked_for() -> None:
    """A program that serves one system does not prove the declarations of five."""
    program = (
        "import sys; from keyhouse.systems.registry import load; load('rosey');"
        "print(*(name for name in sys.modules if name.startswith('keyhouse.systems.') and name.count('.') == 2))"
    )
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert ran.stdout.split() == ["keyhouse.systems.registry", "keyhouse.systems.rosey"]
