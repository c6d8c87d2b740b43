"""The HTTP routes of a schema, made from the table of verbs: one set for each record, counter and
log, and those of the whole space."""

import re
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final
from urllib.parse import quote

import msgspec
from msgspec import NODEFAULT, UNSET

from keyhouse.advice.nearest import nearest
from keyhouse.auth import Caller
from keyhouse.errors import AccessError, KeyFieldError, PreparingError, UsageError
from keyhouse.http import Conditions, Response, ResponseSpec, Route, page_response
from keyhouse.http.preconditions import NO_CONDITIONS
from keyhouse.http.signature import ARGUMENTS
from keyhouse.operations.catalog import Catalog, Fields, ServedDerived, ServedRecord
from keyhouse.operations.page_filters import no_index
from keyhouse.operations.record_verbs import RECORD_VERBS
from keyhouse.operations.replies import (
    CounterValue,
    DeletedRecord,
    FoundItems,
    NewItem,
    ServedItem,
    ServedPage,
)
from keyhouse.operations.requests import IdempotencyKey, Parameter
from keyhouse.operations.verb import NO_BODY, VALUE, Verb
from keyhouse.service.schema_service.document_types import (
    RecordTypes,
    choice,
    filters,
    parameters,
    texts_of,
)
from keyhouse.service.schema_service.parameter_docs import COMMON, field_docs, filter_docs
from keyhouse.service.schema_service.settings import SchemaSettings
from keyhouse.service.schema_service.space import SchemaSpace
from keyhouse.service.tenants import Tenants

__all__ = [
    "READ",
    "SPACES",
    "WRITE",
    "CallerSpaces",
    "Named",
    "SpaceHeader",
    "argument_reader",
    "argument_types",
    "record_routes",
    "shown_to",
]

READ = "read"
WRITE = "write"
SPACES = "spaces"
"""The scope of tokens that may name any space, by a header."""

Named = tuple[str, Route]
"""A route with the name of its operation."""

_ETAG: Final = {"ETag": "The revision, for If-Match and If-None-Match."}
_LOCATION: Final = {"Location": "The address of the record, relative to the request's."}


class SpaceHeader(msgspec.Struct):
    """The space, for tokens with the scope `spaces`."""

    space: str | None = msgspec.field(default=None, name="Keyhouse-Space")


class WriteHeaders(SpaceHeader):
    key: IdempotencyKey | None = msgspec.field(default=None, name="Idempotency-Key")


class CallerSpaces:
    """Finds the space of a request."""

    def __init__(
        self, catalog: Catalog, settings: SchemaSettings, tenants: Tenants[SchemaSpace]
    ) -> None:
        only = catalog.schema.space.name
        self._fixed = settings.space if settings.space is not None else only
        self._tenants = tenants

    def of(self, caller: Caller, headers: SpaceHeader) -> SchemaSpace:
        """Return the space of a request: a fixed one, the one that the header names for tokens that
        may, or the token's tenant."""
        name = self._fixed or caller.tenant
        if headers.space is not None and headers.space != name:
            if self._fixed is not None:
                raise AccessError("This service has one space.", space=self._fixed)
            caller.require(SPACES)
            name = headers.space
        try:
            return self._tenants.get(name)
        except KeyFieldError as error:
            raise AccessError(
                "The token's tenant, or the header Keyhouse-Space, is not a space of this schema.",
                space=name,
                reason=error.sentence,
            ) from None


def record_routes(catalog: Catalog, spaces: CallerSpaces) -> list[Named]:
    """Return the routes of all records, counters and logs."""
    return [
        (verb.name, _allowed(served, _VerbRoute(verb, served, types, spaces).route()))
        for served in catalog.every
        for types in [RecordTypes(served)]
        for verb in RECORD_VERBS
        if verb.has_route(served)
    ]


def _allowed(served: ServedRecord, route: Route) -> Route:
    """Return the route, or one that rejects its requests, and that the document does not list, if
    the record is closed or read-only: with the error that a batch has."""
    try:
        served.check_access("http", write=route.scope == WRITE)
    except AccessError as error:
        rejection = error
    else:
        return route

    async def handler(**given: Any) -> None:
        raise rejection.copy()

    fields = re.findall(r"{(\w+)}", route.path)
    return Route(
        method=route.method,
        path=route.path,
        handler=handler,
        parameters={**dict.fromkeys(fields, str), "caller": Caller},
        scope=route.scope,
        listed=False,
        rejects=True,
    )


class _VerbRoute:
    """The route of one verb of one record, counter or log."""

    def __init__(
        self, verb: Verb, served: ServedRecord, types: RecordTypes, spaces: CallerSpaces
    ) -> None:
        self._verb = verb
        self._served = served
        self._types = types
        self._spaces = spaces
        at = verb.key == "address"
        self._names = {
            field: f"{field}_" if field in ARGUMENTS else field
            for field in (served.fields if at else ())
        }
        """The parameters of the path, by key field."""
        self._path_names = [*self._names.items()]
        self._key_kind = verb.key
        self._rows = verb.rows(served)
        self._query = self._query_type()

    def route(self) -> Route:
        verb, served = self._verb, self._served
        path = verb.path.replace("{kind}", served.kind).replace("{name}", served.name)
        address = "".join([f"/{{{name}}}" for name in self._names.values()])
        docs = {
            self._names.get(name, name): text for name, text in field_docs(served.segments).items()
        }
        return Route(
            method=verb.method,
            path=path.replace("/{address}", address),
            handler=self._handler(),
            parameters={
                **dict.fromkeys(self._names.values(), str),
                **argument_types(verb, self._query),
                "caller": Caller,
            },
            name=f"{verb.id or verb.name}_{served.name}".replace("-", "_"),
            doc=verb.doc(served),
            tag=served.name,
            scope=verb.access,
            problems=[*dict.fromkeys([*verb.problems, PreparingError])],
            parameter_docs={**COMMON, **docs, **self._row_docs()},
            **self._body(),
            **self._reply(),
        )

    def _handler(self) -> Callable[..., Any]:
        verb, served, space_of = self._verb, self._served, self._spaces.of
        run, key, read, respond = verb.run, self._key, argument_reader(verb), self._respond
        assert run is not None, "every verb of a record has a function"
        is_item, is_deleted = verb.reply is ServedItem, verb.reply is DeletedRecord
        is_page = verb.reply is ServedPage or (
            verb.reply is FoundItems and served.kind != "counter"
        )

        async def handler(**given: Any) -> Any:
            space = space_of(given["caller"], given["headers"])
            arguments = key(given)
            read(given, arguments)
            reply = await run(space, served, **arguments)
            if is_item:
                return respond(given["caller"], reply)
            if is_page:
                return await page_response(reply, "items")
            return None if is_deleted else reply

        return handler

    # The request

    def _query_type(self) -> type[msgspec.Struct] | None:
        verb, served, rows = self._verb, self._served, self._rows
        name, others = f"{verb.id or verb.name}{served.name}", list(verb.query)
        if verb.key == "filters":
            if rows:
                others.insert(0, ("by", choice([*rows]) | None, None))
            unknown = partial(_no_filter, served)
            return parameters(name, filters(served, rows.values()), others, unknown)
        if verb.key == "row":
            fields = dict.fromkeys([field for row in rows.values() for field in row.fields])
            return parameters(name, [*fields], [("by", choice([*rows]), NODEFAULT)])
        if verb.key == "query":
            assert verb.named is not None, "it names the fields"
            texts = [*verb.named(served)]
            return parameters(name, texts, others) if texts or others else None
        if not others:
            return None
        if not served.record.takes_ttl:
            others = [each for each in others if each[0] != "ttl"]
        return parameters(name, [], others, partial(_no_parameter, served, others))

    def _row_docs(self) -> dict[str, str]:
        rows = [row.segments for row in self._rows.values()]
        if self._verb.key == "filters":
            return filter_docs([*rows, self._served.segments])
        docs: dict[str, str] = {}
        for segments in rows if self._verb.key == "row" else ():
            docs |= field_docs(segments)
        return docs

    def _body(self) -> dict[str, Any]:
        """Return the description of a body. The handler takes any value, and checks it itself."""
        verb, types = self._verb, self._types
        if verb.body is not VALUE:
            return {"example": {"by": 1}} if verb.shows_value else {}
        made = {"PUT": types.put, "PATCH": types.patch, "POST": types.created}[verb.method]
        return {"body_type": made(), "body_media_types": verb.media_types}

    def _key(self, given: dict[str, Any]) -> dict[str, Any]:
        """Return the arguments that name what the verb works on."""
        kind, served = self._key_kind, self._served
        if kind == "address":
            texts = {field: given[name] for field, name in self._path_names}
            return {"fields": served.of_texts(texts)}
        query = given.get("query")
        if kind == "filters":
            return {"filters": texts_of(query), "by": getattr(query, "by", None)}
        if kind == "row":
            by = self._rows[query.by]  # type: ignore[union-attr]  # it is required
            return {"by": by, "fields": _row_fields(by, texts_of(query))}
        if kind == "query":
            return {"fields": {} if query is None else served.of_texts(texts_of(query))}
        return {}

    # The response

    def _reply(self) -> dict[str, Any]:
        """Return the types of the responses."""
        verb, types = self._verb, self._types
        if verb.reply is ServedPage:
            return {"result": types.page}
        if verb.reply is FoundItems:
            item = CounterValue if self._served.kind == "counter" else types.item | None
            return {"result": types.found(item)}
        if verb.reply is DeletedRecord:
            return {"result": type(None)}
        if verb.reply is not ServedItem:
            return {"result": verb.reply}
        headers = {**_ETAG, **_LOCATION} if verb.locates else _ETAG
        about = {"about": "Created."} if verb.statuses == (201,) else {}
        spec = ResponseSpec(type=types.item, headers=headers, **about)
        return {"result": Response, "replies": dict.fromkeys(verb.statuses, spec)}

    def _respond(self, caller: Caller, item: ServedItem) -> Response[ServedItem]:
        is_new = type(item) is NewItem
        located = is_new and self._verb.locates
        headers = (("Location", _location(self._served, item)),) if located else ()
        status = 201 if is_new else 200
        return Response(shown_to(caller, item), status=status, headers=headers, etag=item.revision)


def argument_types(verb: Verb, query: type[msgspec.Struct] | None = None) -> dict[str, Any]:
    """Return the types of a handler's arguments: query, body, headers and conditions."""
    types: dict[str, Any] = {}
    if verb.body is not NO_BODY:
        types["body"] = verb.body
    if query is not None:
        types["query"] = query
    types["headers"] = WriteHeaders if verb.is_idempotent else SpaceHeader
    if verb.is_conditional:
        types["conditions"] = Conditions
    return types


def argument_reader(verb: Verb) -> Callable[[Mapping[str, Any], dict[str, Any]], None]:
    """Return a function that takes the arguments of a verb, beside what it works on, from those of
    a handler, and adds them to a dict."""
    query = [(name, default) for name, _, default in verb.query]
    takes_value, members = verb.body is VALUE, verb.body_members
    is_checked = verb.is_conditional and verb.access == WRITE
    is_idempotent, shows_value = verb.is_idempotent, verb.shows_value

    def read(given: Mapping[str, Any], arguments: dict[str, Any]) -> None:
        for name, default in query:
            arguments[name] = getattr(given["query"], name, default)
        if takes_value:
            arguments["value"] = given["body"]
        for name in members:
            arguments[name] = getattr(given["body"], name)
        if is_checked:
            conditions = given["conditions"]
            arguments["check"] = None if conditions is NO_CONDITIONS else conditions.check
        if is_idempotent:
            arguments["key"] = given["headers"].key
        if shows_value:
            arguments["shows_value"] = READ in given["caller"].scopes

    return read


def _row_fields(by: ServedDerived[Any], texts: Mapping[str, str]) -> Fields:
    """Return the key fields of one derived row. Raises UsageError for fewer or others."""
    if texts.keys() != set(by.fields):
        raise UsageError(
            "The request needs the fields of its row, and no others.",
            by=by.name,
            fields=list(by.fields),
        )
    return {name: by.value_of_text(name, text) for name, text in texts.items()}


def _no_filter(served: ServedRecord, name: str) -> UsageError:
    return no_index(served, filter=name)


def _no_parameter(served: ServedRecord, known: list[Parameter], name: str) -> UsageError:
    """Return the error of a parameter that a record does not take."""
    if name == "ttl":
        return served.record.no_ttl()
    names = [each for each, _, _ in known]
    return UsageError("Unknown parameter.", name=name, **nearest(name, names))


def shown_to(caller: Caller, item: ServedItem) -> ServedItem:
    """Return an item as this caller may see it: without its value, if it may not read."""
    if READ not in caller.scopes:
        item.value = UNSET
    return item


def _location(served: ServedRecord, item: ServedItem) -> str:
    """Return the address of an item, relative to that of its record: the app may be mounted
    anywhere."""
    parts = [_text(item.fields[name]) for name in served.fields]
    return "/".join([served.name, *(quote(part, safe="") for part in parts)])


def _text(value: Any) -> str:
    plain = msgspec.to_builtins(value)
    return "null" if plain is None else str(plain)
