"""JSON Schemas of the types of records, requests and replies."""

from collections.abc import Iterable
from typing import Any, Final

import msgspec

from keyhouse.errors import DeclarationError

__all__ = ["json_schemas"]

_ANY: Final = {"description": "Any JSON value."}


def json_schemas(
    kinds: Iterable[Any], ref_template: str
) -> tuple[tuple[dict[str, Any], ...], dict[str, Any]]:
    """Return the schema of each type, and the components that they refer to.

    `object` is any value, as for the decoder. Raises DeclarationError for a type that no JSON value
    has.
    """
    try:
        return msgspec.json.schema_components(
            kinds, schema_hook=_schema_of, ref_template=ref_template
        )
    except TypeError as error:  # the only one: a type of which it knows no schema
        raise DeclarationError(
            "No JSON value has this type: use one that has, such as str, int, list, dict, a Struct"
            " or Any.",
            reason=str(error).rpartition("\n")[2],
        ) from None


def _schema_of(kind: type) -> dict[str, Any]:
    if kind is object:
        return _ANY
    raise NotImplementedError  # msgspec then reports the type
