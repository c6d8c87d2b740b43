"""The OpenAPI 3.1 document of a service, generated from its routes and their types.

Every status is listed, those of the HTTP layer included: an undocumented response is a bug.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from http import HTTPStatus
from inspect import cleandoc, getdoc
from types import UnionType
from typing import Any, Union, get_args, get_origin

import msgspec
from msgspec.inspect import is_struct_type

from keyhouse.errors import (
    AccessError,
    DocumentError,
    KeyhouseError,
    LimitError,
    NotFoundError,
    QuotaError,
    RateError,
    RecordError,
    RevisionError,
    ScopeError,
    TokenError,
    UnavailableError,
    UsageError,
    error_urn,
)
from keyhouse.http.endpoint import Section
from keyhouse.http.errors import (
    PROBLEM,
    AcceptError,
    MediaTypeError,
    RangeError,
    SlowError,
)
from keyhouse.http.event_stream import EVENT_STREAM
from keyhouse.http.forms import MULTIPART, URLENCODED, UploadedFile
from keyhouse.http.response import JSON, ResponseSpec
from keyhouse.http.router import BodySchema, Route
from keyhouse.http.signature import NONE_TYPE, HandlerSignature, handler_signature, is_open
from keyhouse.schema.json_schema import json_schemas

VERSION = "3.1.0"
COMPONENT_REFERENCE = "#/components/schemas/"
"""Before the name of a component, in a reference to it."""

_TAGS = r'^(\*|(W/)?"[!#-~]*"(, *(W/)?"[!#-~]*")*)$'
_SENTENCE = re.compile(r"(.+?[.?!])(?=\s|$)(.*)", re.DOTALL)
Json = dict[str, Any]


def openapi(section: Section, *, version: str, at: str) -> Json:
    """Return the document of one service, by default of this version. `at` is the path that its
    routes are below."""
    routes = [route for route in section.routes if route.listed]
    return _Document(section, routes).generate(version, at)


class _Document:
    def __init__(self, section: Section, routes: Sequence[Route]) -> None:
        self._section = section
        self._routes = [(route, handler_signature(route)) for route in routes]
        self._shared: Json = {}
        self._errors = section.error_format
        types = [kind for route, each in self._routes for kind in _types(route, each)]
        self._types = _Types([*types, self._errors.body])

    def generate(self, version: str, at: str) -> Json:
        paths: Json = {}
        names: set[str] = set()
        for route, each in self._routes:
            paths.setdefault(route.path, {})[route.method.lower()] = self._operation(
                route, each, names
            )
        auth, spdx = self._section.auth, self._section.license
        document: Json = {
            "openapi": VERSION,
            "info": {
                "title": self._section.title or self._section.name,
                "version": self._section.version or version,
                **({"description": self._section.about} if self._section.about else {}),
                **({"license": {"name": spdx, "identifier": spdx}} if spdx else {}),
            },
            "servers": [{"url": at or "/"}],
            "paths": paths,
            "components": {
                "schemas": self._types.components,
                "responses": self._shared,
                **({"securitySchemes": auth.schemes} if auth is not None else {}),
            },
        }
        _shorten_titles(self._types.components)
        finished: Json = _finished(document, _short_names(self._types.components))
        return finished

    def _operation(self, route: Route, each: HandlerSignature, names: set[str]) -> Json:
        summary, description = _first_sentence(cleandoc(route.doc) or getdoc(route.handler) or "")
        operation: Json = {
            "operationId": _unique(_name(route), names),
            "summary": summary.replace("`", ""),
        }
        if description:
            operation["description"] = description
        operation["tags"] = [route.tag or route.path.split("/")[1]]
        if parameters := [*self._parameters(route, each)]:
            operation["parameters"] = parameters
        if each.has_body:
            operation["requestBody"] = self._body(route, each)
        operation["responses"] = self._replies(route, each) | self._problems(route, each)
        operation["security"] = []
        if route.scope is not None and self._section.auth is not None:
            scopes = [route.scope] if route.scope else []
            operation["security"] = [{name: scopes} for name in self._section.auth.schemes]
            if is_open(each, route.scope, self._section.auth):
                operation["security"].append({})
        return operation

    def _parameters(self, route: Route, each: HandlerSignature) -> Iterator[Json]:
        for name, kind in each.path.items():
            schema = _parameter(self._types.schema(kind))
            example = {"example": schema["examples"][0]} if "examples" in schema else {}
            yield {
                "name": name,
                "in": "path",
                "required": True,
                "schema": schema,
                **_description(route, name, schema),
                **example,
            }
        for place, struct in (("query", each.query), ("header", each.headers)):
            if struct is not None:
                yield from self._members(route, place, struct)
        if each.conditions:
            for name, what in (
                ("If-Match", "one of these tags"),
                ("If-None-Match", "none of these tags"),
            ):
                yield {
                    "name": name,
                    "in": "header",
                    "description": (
                        f'Continue only if the record has {what}, such as `"17"`; `*` is any.'
                    ),
                    "schema": {"type": "string", "pattern": _TAGS},
                }

    def _members(self, route: Route, place: str, struct: type[msgspec.Struct]) -> Iterator[Json]:
        shape = self._types.inside(struct)
        for name, schema in shape["properties"].items():
            required = name in shape.get("required", ())
            yield {
                "name": name,
                "in": place,
                "required": required,
                "schema": _parameter(schema),
                **_description(route, name, schema),
            }

    def _body(self, route: Route, each: HandlerSignature) -> Json:
        if each.is_form:
            content = {"schema": _form_schema(self._types.inside(each.body))}
            return {"required": True, "content": {URLENCODED: content, MULTIPART: content}}
        if each.body is bytes and route.body_type is None:
            return {"required": True, "content": {"application/octet-stream": {"schema": {}}}}
        kind = each.body if route.body_type is None else route.body_type
        content = {"schema": self._types.schema(kind), **_example(route.example)}
        return {
            "required": each.body is not bytes,
            "content": dict.fromkeys(route.body_media_types, content),
        }

    def _replies(self, route: Route, each: HandlerSignature) -> Json:
        replies = {
            str(status): self._reply(status, returns) for status, returns in each.replies.items()
        }
        if route.method == "GET" and any(
            "ETag" in returns.headers for returns in each.replies.values()
        ):
            replies["304"] = {
                "description": "The client has this version already, by its If-None-Match."
            }
        return replies

    def _reply(self, status: int, returns: ResponseSpec) -> Json:
        reply: Json = {"description": returns.about or HTTPStatus(status).phrase}
        if returns.headers:
            reply["headers"] = {
                name: {"description": what, "schema": {"type": "string"}}
                for name, what in returns.headers.items()
            }
        if returns.type is not NONE_TYPE:
            is_json = returns.media_type == JSON
            schema = self._types.schema(returns.type) if is_json else {"type": "string"}
            reply["content"] = {returns.media_type: {"schema": schema, **_example(returns.example)}}
        return reply

    def _problems(self, route: Route, each: HandlerSignature) -> Json:
        by_status: dict[int, list[type[KeyhouseError]]] = {}
        for kind in (
            *route.problems,
            *http_errors(route, each, limited=self._is_limited(route)),
        ):
            if kind not in by_status.setdefault(kind.status, []):
                by_status[kind.status].append(kind)
        return {
            str(status): self._problem(status, by_status[status]) for status in sorted(by_status)
        }

    def _is_limited(self, route: Route) -> bool:
        section = self._section
        has_rates = section.rates is not None and route.scope is not None
        return has_rates or section.address_rates is not None

    def _problem(self, status: int, kinds: list[type[KeyhouseError]]) -> Json:
        """Return a reference to a response that is shared by all routes with these errors."""
        name = f"{status}-" + "-".join(kind.type for kind in kinds)
        if name not in self._shared:
            self._shared[name] = self._problem_reply(status, kinds)
        return {"$ref": f"#/components/responses/{name}"}

    def _problem_reply(self, status: int, kinds: list[type[KeyhouseError]]) -> Json:
        phrase = HTTPStatus(status).phrase
        example = self._errors.render(kinds[0]("A sentence about the error."), "4f1d-2a")
        codes = ", ".join(f"`{error_urn(kind)}`" for kind in kinds)
        if self._errors is not PROBLEM:
            codes = ", ".join(dict.fromkeys(f"`{kind.code}`" for kind in kinds))
        reply: Json = {
            "description": f"{phrase}: {codes}.",
            "content": {
                self._errors.media_type: {
                    "schema": self._types.schema(self._errors.body),
                    "example": msgspec.to_builtins(example),
                }
            },
        }
        if status in (429, 503):
            reply["headers"] = {
                "Retry-After": {"description": "Seconds to wait.", "schema": {"type": "integer"}}
            }
        return reply


def http_errors(
    route: Route, each: HandlerSignature, *, limited: bool
) -> Iterator[type[KeyhouseError]]:
    """Yield the errors that the HTTP layer itself may return for this route."""
    yield UsageError
    if each.path:
        yield NotFoundError
    if route.scope is not None:
        yield from (TokenError, ScopeError)
    if limited:
        yield RateError
    if any(reply.media_type == EVENT_STREAM for reply in each.replies.values()):
        yield QuotaError
    yield AcceptError
    if each.is_form or (route.scope is not None and route.method != "GET"):
        yield AccessError
    if each.has_body:
        yield from (SlowError, LimitError)
        if each.is_form:
            yield MediaTypeError
        elif each.body is not bytes:
            yield from (DocumentError, MediaTypeError, RecordError)
    if each.conditions or 206 in each.replies:
        yield RevisionError
    if 206 in each.replies:
        yield from (NotFoundError, RangeError)
    yield from (KeyhouseError, UnavailableError)


class _Types:
    """The JSON Schemas of all types of a document, generated together: each is included once."""

    def __init__(self, kinds: Iterable[Any]) -> None:
        wanted = [
            each
            for kind in kinds
            if not isinstance(kind, BodySchema)
            for each in _alternatives(kind)
        ]
        schemas, self.components = json_schemas(wanted, ref_template=COMPONENT_REFERENCE + "{name}")
        self._schemas = list(zip(wanted, schemas, strict=True))

    def schema(self, kind: Any) -> Json:
        """Find by identity or equality: some types, such as those with examples, have no hash."""
        if isinstance(kind, BodySchema):
            self.components.update(kind.components)
            return kind.schema
        if len(alternatives := _alternatives(kind)) > 1:
            return {"oneOf": [self.schema(each) for each in alternatives]}
        return next(schema for each, schema in self._schemas if each is kind or each == kind)

    def inside(self, struct: type[msgspec.Struct]) -> Json:
        """Return the schema of a Struct that is not a component, such as a query."""
        [[reference], components] = json_schemas(
            (struct,), ref_template=COMPONENT_REFERENCE + "{name}"
        )
        name = reference["$ref"].removeprefix(COMPONENT_REFERENCE)
        schema: Json = components.pop(name)
        self.components.update(components)
        return schema


def _alternatives(kind: Any) -> tuple[Any, ...]:
    """Return the types of a union of Structs, for which msgspec has no schema; else the type."""
    parts = get_args(kind) if get_origin(kind) in (Union, UnionType) else ()
    are_structs = [is_struct_type(get_origin(each) or each) for each in parts]
    return parts if parts and all(are_structs) else (kind,)


def _types(route: Route, each: HandlerSignature) -> Iterator[Any]:
    yield from each.path.values()
    if route.body_type is not None:
        yield route.body_type
    elif each.has_body and each.body is not bytes and not each.is_form:
        yield each.body
    for returns in each.replies.values():
        if returns.type is not NONE_TYPE and returns.media_type == JSON:
            yield returns.type


def _description(route: Route, name: str, schema: Json) -> Json:
    text = schema.get("description", route.parameter_docs.get(name))
    return {} if text is None else {"description": text}


def _shorten_titles(components: Json) -> None:
    """Remove modules from the titles of generic types: `Data[Items[Book]]`."""
    for schema in components.values():
        if "[" in schema.get("title", ""):
            schema["title"] = re.sub(r"\b(?:\w+\.)+", "", schema["title"])


def _short_names(components: Json) -> dict[str, str]:
    """Return the names of generic types by those that msgspec gives, which contain modules. A name
    that two would have is left as it is."""
    short = {
        name: re.sub(r"\W+", "_", schema["title"]).strip("_")
        for name, schema in components.items()
        if "[" in schema.get("title", "")
    }
    taken = Counter([*short.values(), *(components.keys() - short.keys())])
    return {name: each for name, each in short.items() if taken[each] == 1}


def _finished(part: Any, names: dict[str, str]) -> Any:
    """Return a document with these names of components, and without `"items": false`, by which
    msgspec ends a tuple: its length is limited anyway, and some generators of clients know no
    boolean schemas."""
    if isinstance(part, dict):
        return {
            names.get(name, name): _finished(each, names)
            for name, each in part.items()
            if not (name == "items" and each is False)
        }
    if isinstance(part, str) and part.startswith(COMPONENT_REFERENCE):
        name = part.removeprefix(COMPONENT_REFERENCE)
        return COMPONENT_REFERENCE + names.get(name, name)
    return [_finished(each, names) for each in part] if isinstance(part, list) else part


def _form_schema(schema: Json) -> Json:
    """Return the schema of a form: a file is binary text."""
    is_file = {"$ref": f"{COMPONENT_REFERENCE}{UploadedFile.__name__}"}
    file = {"type": "string", "format": "binary"}
    members = {
        name: file if is_file in (part, *part.get("anyOf", ())) else part
        for name, part in schema["properties"].items()
    }
    return schema | {"properties": members}


def _parameter(schema: Json) -> Json:
    """Return the schema of a parameter: it is text, and an absent one is not null."""
    own = {name: part for name, part in schema.items() if (name, part) != ("default", None)}
    if "anyOf" in own:
        options = [each for each in own.pop("anyOf") if each != {"type": "null"}]
        own |= options[0] if len(options) == 1 else {"anyOf": options}
    if "enum" in own:
        own["enum"] = [each for each in own["enum"] if each is not None]
        own |= {"type": "string"} if all(isinstance(each, str) for each in own["enum"]) else {}
    return own


def _name(route: Route) -> str:
    return route.name or getattr(route.handler, "__name__", route.method.lower())


def _first_sentence(doc: str) -> tuple[str, str]:
    """Return the first sentence of a docstring, on one line, and the rest."""
    match = _SENTENCE.fullmatch(doc)
    sentence, rest = match.groups() if match else (doc, "")
    return " ".join(sentence.split()), rest.strip()


def _unique(name: str, names: set[str]) -> str:
    unique, number = name, 1
    while unique in names:
        number += 1
        unique = f"{name}_{number}"
    names.add(unique)
    return unique


def _example(value: Any) -> Json:
    return {} if value is msgspec.UNSET else {"example": msgspec.to_builtins(value)}
