"""`keyhouse serve` that writes its routing table to a file: `listing_server FILE serve ...`.

The table is that of the running service, so it has every route: also pages and others that no
OpenAPI document lists, and those that are added later.
"""

import inspect
import json
import sys
from pathlib import Path
from typing import Any, get_origin

import msgspec

from keyhouse.cli.__main__ import main
from keyhouse.errors import KeyhouseError
from keyhouse.http.endpoint import HttpEndpoint
from keyhouse.http.signature import Parameters

LETTERS_MIN = 3
"""A name with fewer letters has no misspelled form that is nearest to it alone."""


def listed(endpoint: HttpEndpoint, section: Any) -> dict[str, Any]:
    """Return a route as JSON, with what a client needs for a request of it."""
    route, signature = endpoint.route, endpoint.signature
    query = () if signature.query is None else msgspec.structs.fields(signature.query)
    example = None if route.example is msgspec.UNSET else msgspec.to_builtins(route.example)
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
        "typos": {} if signature.query is None else typos(signature.query),
        "has_body": signature.has_body,
        "is_form": signature.is_form,
        "example": example,
        "doc": inspect.getdoc(route.handler) if route.listed else None,
    }


def _names(kind: Any) -> list[str]:
    is_struct = isinstance(kind, type) and issubclass(kind, msgspec.Struct)
    return [field.encode_name for field in msgspec.structs.fields(kind)] if is_struct else []


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
    routes: list[dict[str, Any]] = []
    bind = HttpEndpoint.__init__

    def noting(self: HttpEndpoint, route: Any, section: Any, *others: Any) -> None:
        bind(self, route, section, *others)
        routes.append(listed(self, section))
        path.write_text(json.dumps(routes))

    HttpEndpoint.__init__ = noting  # type: ignore[method-assign, assignment]


if __name__ == "__main__":
    install(Path(sys.argv.pop(1)))
    main()
