"""`keyhouse serve` that writes its routing table to a file, a line of JSON for each route:
`listing_server FILE serve ...`.

The table is that of the running service, so it has every route: also pages and others that no
OpenAPI document lists, and those that are added later.
"""

import json
import re
import sys
from inspect import getdoc
from pathlib import Path
from typing import Any, Final, get_origin

import msgspec
from msgspec import inspect

from keyhouse.cli.__main__ import main
from keyhouse.errors import KeyhouseError
from keyhouse.http.endpoint import HttpEndpoint
from keyhouse.http.signature import Parameters

TEXTS: Final = ("a", "0" * 26, "2026-11-18", "a@b.c")
"""Of these, a text has the first that its pattern allows."""

DEPTH_MAX: Final = 4
LETTERS_MIN = 3
"""A name with fewer letters has no misspelled form that is nearest to it alone."""


def listed(endpoint: HttpEndpoint, section: Any) -> dict[str, Any]:
    """Return a route as JSON, with what a client needs for a request of it."""
    route, signature = endpoint.route, endpoint.signature
    query = () if signature.query is None else msgspec.structs.fields(signature.query)
    has_example = route.example is not msgspec.UNSET
    example = msgspec.to_builtins(route.example) if has_example else least_value(signature.body)
    return {
        "system": "" if section is None else section.name,
        "method": route.method,
        "path": endpoint.template,
        "scope": route.scope,
        "known": {name: sorted(known) for name, _, known, *_ in endpoint.converted if known},
        "query": [field.encode_name for field in query if field.required],
        "parameters": [field.encode_name for field in query],
        "headers": _names(signature.headers),
        "members": _names(signature.body),
        "values": member_values(signature.body),
        "typos": {} if signature.query is None else typos(signature.query),
        "has_body": signature.has_body,
        "is_form": signature.is_form,
        "example": example,
        "doc": (route.doc or getdoc(route.handler)) if route.listed else None,
    }


def _names(kind: Any) -> list[str]:
    return [field.encode_name for field in msgspec.structs.fields(kind)] if _is_struct(kind) else []


def least_value(kind: Any) -> Any:
    """Return a body with the members that a type requires, for a route without an example: what
    is in another member is decoded only then."""
    return _value(inspect.type_info(kind), depth=0) if _is_struct(kind) else None


def member_values(kind: Any) -> dict[str, Any]:
    """Return a value for each member of a body, with one item in each list."""
    fields = inspect.type_info(kind).fields if _is_struct(kind) else ()  # type: ignore[attr-defined]
    return {each.encode_name: _value(each.type, depth=DEPTH_MAX) for each in fields}


def _value(info: Any, *, depth: int) -> Any:
    """Return a value of a type. To this depth, it has all members and not the required alone."""
    inner = max(0, depth - 1)
    match info:
        case inspect.StructType(fields=fields):
            chosen = [each for each in fields if each.required or depth]
            return {each.encode_name: _value(each.type, depth=inner) for each in chosen}
        case inspect.Metadata(type=type):
            return _value(type, depth=depth)
        case inspect.UnionType(types=types):
            usual = [each for each in types if not isinstance(each, inspect.NoneType)]
            return _value(usual[0], depth=depth)
        case inspect.LiteralType(values=values):
            return values[0]
        case inspect.StrType(pattern=pattern):
            return next((each for each in TEXTS if re.search(pattern or "", each)), "a")
        case inspect.IntType() | inspect.FloatType():
            return 1
        case inspect.BoolType():
            return True
        case inspect.DictType(value_type=value):
            return {"a": _value(value, depth=inner)} if depth else {}
        case inspect.ListType(item_type=item):
            return [_value(item, depth=inner)]
    return "a"


def _is_struct(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, msgspec.Struct)


def typos(query: type[msgspec.Struct]) -> dict[str, Any]:
    """Return the nearest name in the error of each misspelled parameter: `limt` for `limit`."""
    reported: dict[str, Any] = {}
    for field in msgspec.structs.fields(query):
        name = field.encode_name
        if len(name) > LETTERS_MIN and get_origin(field.type) is not dict:
            try:
                Parameters(query, "parameter").read([(name[:-2] + name[-1], "1")])
                reported[name] = "accepted"  # by a route that takes any parameter
            except KeyhouseError as error:
                reported[name] = error.fields.get("nearest")
    return reported


def install(path: Path) -> None:
    """Have every route that is bound to its service written to the file."""
    bind = HttpEndpoint.__init__

    def noting(self: HttpEndpoint, route: Any, section: Any, *others: Any) -> None:
        bind(self, route, section, *others)
        with path.open("a") as file:
            file.write(f"{json.dumps(listed(self, section))}\n")

    HttpEndpoint.__init__ = noting  # type: ignore[method-assign, assignment]


if __name__ == "__main__":
    install(Path(sys.argv.pop(1)))
    main()
