"""JSON Schemas of declared types."""

import re
from pathlib import Path

import pytest
from msgspec import Struct

import keyhouse
from keyhouse.errors import DeclarationError
from keyhouse.schema.json_schema import json_schemas


class Free(Struct):
    values: dict[str, object]


class Unusual(Struct):
    values: list[complex]


def test_object_is_any_value() -> None:
    """A reply with such a member ended the service when it started."""
    _, components = json_schemas([Free], ref_template="#/{name}")
    values = components["Free"]["properties"]["values"]
    assert values["additionalProperties"] == {"description": "Any JSON value."}


def test_a_type_that_no_json_value_has_is_an_error_of_the_declaration() -> None:
    with pytest.raises(DeclarationError, match="No JSON value has this type") as raised:
        json_schemas([Unusual], ref_template="#/{name}")
    assert raised.value.fields["reason"] == "type <class 'complex'> is not supported"


def test_no_other_module_asks_msgspec_for_schemas() -> None:
    package = Path(keyhouse.__file__).parent
    asking = [
        str(file.relative_to(package))
        for file in package.rglob("*.py")
        if re.search(r"json\.schema(_components)?\(", file.read_text())
    ]
    assert asking == ["schema/json_schema.py"]
