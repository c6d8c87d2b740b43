"""The names of a record's derived rows, by which requests of a service choose one.

A name is declared (`Index(…, name="tag")`), or made of the words of the template: without `idx`,
and without the name of the record itself. `idx:clip:tag:{tag}:{id}` is `tag`.
"""

import re
from typing import Any

from keyhouse.errors import DeclarationError
from keyhouse.schema.derived import Derived
from keyhouse.schema.record import Record

__all__ = ["derived_names", "index_name"]

_WORD = re.compile("[A-Za-z0-9]+")


def index_name(record: Record[Any], derived: Derived) -> str:
    """Return the name of one derived row. A template without words is named by its fields."""
    if derived.name is not None:
        return derived.name
    words = _WORD.findall(" ".join(derived.template.literals))
    own = [word for word in words if word.lower() not in ("idx", record.name.lower())]
    return "_".join(own or derived.template.fields)


def derived_names(record: Record[Any]) -> dict[str, Derived]:
    """Return the derived rows of a record by name. Raises DeclarationError if two have the same."""
    names: dict[str, Derived] = {}
    for derived in record.derived:
        name = index_name(record, derived)
        if name in names:
            raise DeclarationError(
                "Two derived rows of a record have the same name: give one a name, as in "
                'Index(…, name="by_tag").',
                record=record.name,
                name=name,
                templates=[names[name].template.text, derived.template.text],
            )
        names[name] = derived
    return names
