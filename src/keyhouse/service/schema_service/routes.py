"""The HTTP routes of a schema, generated from its declarations: one set for each record, counter
and log.

A handler's signature is made here, since its path and query follow from the record's key.
"""

import re
from collections.abc import Awaitable, Callable, Iterator, Mapping
from functools import partial
from inspect import Parameter, Signature
from typing import Annotated, Any, Final, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType

from keyhouse.auth import Caller
from keyhouse.errors import (
    AccessError,
    ConflictError,
    ContentionError,
    CounterError,
    LinkError,
    NotFoundError,
    PreparingError,
    QuotaError,
    UnknownOutcomeError,
    UsageError,
)
from keyhouse.http import Conditions, Response, ResponseSpec, Route
from keyhouse.http.signature import ARGUMENTS
from keyhouse.schema import Counter
from keyhouse.schema.counter import DAYS_MAX
from keyhouse.service.schema_service.answers import (
    CounterValue,
    ListedKeys,
    SummaryMembers,
    UnreadableItem,
)
from keyhouse.service.schema_service.catalog import Catalog, ServedDerived, ServedRecord
from keyhouse.service.schema_service.document_types import (
    RecordTypes,
    choice,
    filters,
    parameters,
)
from keyhouse.service.schema_service.handlers import (
    PAGE_ITEMS,
    READ,
    WRITE,
    Increment,
    KeyLimit,
    Limit,
    RecordAddresses,
    SchemaHandlers,
    SpaceHeader,
    WriteHeaders,
)
from keyhouse.service.schema_service.page_filters import no_index
from keyhouse.service.schema_service.parameter_docs import COMMON, field_docs, filter_docs
from keyhouse.service.schema_service.space_routes import WRITE_PROBLEMS, space_routes

__all__ = ["routes"]

Named = tuple[str, Route]
Call = Callable[..., Awaitable[Any]]

_MERGE_PATCH: Final = ("application/merge-patch+json", "application/json")
_ETAG: Final = {"ETag": "The revision, for If-Match and If-None-Match."}
_LOCATION: Final = {"Location": "The address of the record, relative to the request's."}


def routes(catalog: Catalog, on: SchemaHandlers) -> list[Named]:
    """Return the routes, each with the name of its operation."""
    found: list[Named] = []
    for served in catalog.every:
        made = _Routes(served, on)
        kinds = {"record": made.record, "counter": made.counter, "log": made.log}
        found += [(operation, _allowed(served, route)) for operation, route in kinds[served.kind]()]
    return [*found, *space_routes(catalog, on)]


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
    types = {**dict.fromkeys(fields, str), "caller": Caller}
    handler.__annotations__ = {**types, "return": None}
    handler.__signature__ = Signature(  # type: ignore[attr-defined]  # read by `inspect`
        [Parameter(each, Parameter.KEYWORD_ONLY) for each in types]
    )
    return Route(
        method=route.method,
        path=route.path,
        handler=handler,
        scope=route.scope,
        listed=False,
        rejects=True,
    )


class _Routes:
    """The routes of one record, counter or log."""

    def __init__(self, served: ServedRecord, on: SchemaHandlers) -> None:
        self._served = served
        self._on = on
        self._types = RecordTypes(served)
        self._path = f"/{served.kind}s/{served.name}"
        names = {field: f"{field}_" if field in ARGUMENTS else field for field in served.fields}
        self._names = names
        self._address = "".join([f"/{{{name}}}" for name in names.values()])

    def record(self) -> Iterator[Named]:
        yield self._list("list", f"List {self._served.name} records, by key or by an index.")
        if self._address:
            yield "get", self._get()
        yield self._get_many()
        if self._served.lookups:
            yield self._lookup()
        yield self._keys()
        if counts := self._served.counts:
            doc = f"Read a number of {self._served.name} records that a count row holds."
            yield self._row("record_count", "record-counts", counts, doc, CounterValue)
        if summaries := self._served.summaries:
            doc = f"Read the {self._served.name} records that a summary row lists."
            yield self._row("members", "members", summaries, doc, SummaryMembers)
        yield "create", self._create()
        yield "put", self._put()
        yield "patch", self._patch()
        yield "delete", self._delete()

    def counter(self) -> Iterator[Named]:
        name = self._served.name
        if self._address:
            yield self._list("list", f"List the counters {name}, by key, with their values.")
        yield (
            "get",
            self._route(
                "GET",
                f"count_{name}",
                f"Read the counter {name}.",
                self._on.count,
                {"headers": SpaceHeader},
                CounterValue,
                scope=READ,
                at=True,
            ),
        )
        yield self._get_many()
        yield self._keys()
        if isinstance(self._served.record, Counter) and self._served.record.day_field is not None:
            yield self._sum_of_days()
        yield (
            "add",
            self._route(
                "POST",
                f"add_{name}",
                f"Add to the counter {name}.",
                self._on.add,
                {"body": Increment, "headers": WriteHeaders},
                CounterValue,
                scope=WRITE,
                at=True,
                problems=[*WRITE_PROBLEMS, CounterError],
                example={"by": 1},
            ),
        )

    def log(self) -> Iterator[Named]:
        name = self._served.name
        yield self._list("list", f"List events of the log {name}, in their order.")
        yield self._get_many()
        yield self._keys()
        yield "append", self._new("append", f"Append an event to the log {name}.")

    # Each route

    def _list(self, operation: str, doc: str) -> Named:
        served = self._served
        query = self._page_query("List", Limit, served.indexes)
        call = self._on.list_events if served.kind == "log" else self._on.list
        route = self._route(
            "GET",
            f"list_{served.name}",
            doc,
            call,
            {"query": query, "headers": SpaceHeader},
            self._types.page,
            scope=READ,
            problems=[AccessError],
            docs=self._filter_docs(served.indexes),
        )
        return operation, route

    def _filter_docs(self, rows: Mapping[str, ServedDerived[Any]]) -> dict[str, str]:
        return filter_docs([*[row.segments for row in rows.values()], self._served.segments])

    def _page_query(self, name: str, limit: Any, rows: Mapping[str, ServedDerived[Any]]) -> Any:
        """Return the parameters of a page: filters, the row that it is by, and those of paging."""
        served = self._served
        others: list[tuple[str, Any, Any]] = [
            ("order", Literal["asc", "desc"], "asc"),
            ("limit", limit, PAGE_ITEMS),
            ("cursor", str | None, None),
        ]
        if rows:
            others.insert(0, ("by", choice([*rows]) | None, None))
        return parameters(
            f"{name}{served.name}",
            filters(served, rows.values()),
            others,
            lambda name: no_index(served, filter=name),
        )

    def _keys(self) -> Named:
        served = self._served
        return self._read(
            "keys",
            "keys",
            f"List keys of {served.name}, or of a row that is derived from it, without values.",
            {"query": self._page_query("Keys", KeyLimit, served.derived)},
            ListedKeys,
            problems=[AccessError],
            docs=self._filter_docs(served.derived),
        )

    def _get_many(self) -> Named:
        served = self._served
        item: Any = CounterValue if served.kind == "counter" else self._types.item | None
        return self._read(
            "get_many",
            "get-many",
            f"Read {served.name} at several addresses; null where there is none.",
            {"body": RecordAddresses},
            msgspec.defstruct(
                f"{self._types.name}Found",
                [
                    ("items", list[item]),
                    ("unreadable", list[UnreadableItem] | UnsetType, UNSET),
                ],
            ),
            method="POST",
        )

    def _sum_of_days(self) -> Named:
        served = self._served
        counter: Any = served.record
        fields = [name for name in served.fields if name != counter.day_field]
        days = ("days", Annotated[int, Meta(ge=1, le=DAYS_MAX)], msgspec.NODEFAULT)
        return self._read(
            "sum_of_days",
            "sums",
            f"Sum the counter {served.name} over the last days (UTC), with today.",
            {"query": parameters(f"Sum{served.name}", fields, [days])},
            CounterValue,
        )

    def _lookup(self) -> Named:
        return self._row(
            "lookup",
            "lookup",
            self._served.lookups,
            f"Find the {self._served.name} record that a unique row leads to.",
            Response,
            replies={200: ResponseSpec(type=self._types.item, headers=_ETAG)},
            problems=[AccessError, NotFoundError],
        )

    def _row(
        self,
        operation: str,
        folder: str,
        rows: Mapping[str, ServedDerived[Any]],
        doc: str,
        returns: Any,
        **route: Any,
    ) -> Named:
        """Return the route that reads one derived row, by its name and its key fields."""
        fields = dict.fromkeys([field for row in rows.values() for field in row.fields])
        by = ("by", choice([*rows]), msgspec.NODEFAULT)
        query = parameters(f"{operation}{self._served.name}", [*fields], [by])
        docs: dict[str, str] = {}
        for row in rows.values():
            docs |= field_docs(row.segments)
        route = {"problems": [AccessError], "docs": docs, **route}
        return self._read(operation, folder, doc, {"query": query}, returns, **route)

    def _read(
        self,
        operation: str,
        folder: str,
        doc: str,
        arguments: dict[str, Any],
        returns: Any,
        *,
        method: str = "GET",
        **route: Any,
    ) -> Named:
        """Return the route of a read that has its own path, `/folder/name`."""
        name = self._served.name
        made = self._route(
            method,
            f"{operation}_{name}",
            doc,
            getattr(self._on, operation),
            {**arguments, "headers": SpaceHeader},
            returns,
            path=f"/{folder}/{name}",
            scope=READ,
            **route,
        )
        return operation, made

    def _get(self) -> Route:
        name = self._served.name
        return self._route(
            "GET",
            f"get_{name}",
            f"Read a {name} record.",
            self._on.get,
            {"headers": SpaceHeader, "conditions": Conditions},
            Response,
            scope=READ,
            at=True,
            replies={200: ResponseSpec(type=self._types.item, headers=_ETAG)},
            problems=[NotFoundError],
        )

    def _create(self) -> Route:
        return self._new("create", f"Create a {self._served.name} record.")

    def _new(self, operation: str, doc: str) -> Route:
        served = self._served
        arguments: dict[str, Any] = {"body": Any, "headers": SpaceHeader}
        query = parameters(f"New{served.name}Query", [*served.given]) if served.given else None
        if query is not None:
            arguments["query"] = query
        call = self._on.append if operation == "append" else self._on.create
        if query is None:
            call = partial(call, query=None)
        created = _ETAG if operation == "append" else {**_ETAG, **_LOCATION}
        return self._route(
            "POST",
            f"{operation}_{served.name}",
            doc,
            call,
            arguments,
            Response,
            scope=WRITE,
            replies={201: ResponseSpec(type=self._types.item, about="Created.", headers=created)},
            problems=[ConflictError, *WRITE_PROBLEMS],
            body_type=self._types.created(),
        )

    def _put(self) -> Route:
        served = self._served
        ttl = [("ttl", float | None, None)] if served.record.takes_ttl else []
        arguments: dict[str, Any] = {
            "body": Any,
            "query": parameters(f"Put{served.name}", [], ttl, partial(_no_parameter, served)),
            "headers": SpaceHeader,
            "conditions": Conditions,
        }
        spec = ResponseSpec(type=self._types.item, headers=_ETAG)
        return self._route(
            "PUT",
            f"put_{served.name}",
            f"Write a {served.name} record. Private members that are left out stay as they are.",
            self._on.put,
            arguments,
            Response,
            scope=WRITE,
            at=True,
            replies={200: spec, 201: spec},
            problems=[*WRITE_PROBLEMS],
            body_type=self._types.put(),
        )

    def _patch(self) -> Route:
        name = self._served.name
        return self._route(
            "PATCH",
            f"patch_{name}",
            f"Change some members of a {name} record, by a merge patch (RFC 7396).",
            self._on.patch,
            {"body": Any, "headers": SpaceHeader, "conditions": Conditions},
            Response,
            scope=WRITE,
            at=True,
            replies={200: ResponseSpec(type=self._types.item, headers=_ETAG)},
            problems=[NotFoundError, *WRITE_PROBLEMS],
            body_type=self._types.patch(),
            body_media_types=_MERGE_PATCH,
        )

    def _delete(self) -> Route:
        name = self._served.name
        return self._route(
            "DELETE",
            f"delete_{name}",
            f"Delete a {name} record. Succeeds if it does not exist.",
            self._on.delete,
            {"headers": SpaceHeader, "conditions": Conditions},
            type(None),
            scope=WRITE,
            at=True,
            problems=[LinkError, QuotaError, ContentionError, UnknownOutcomeError],
        )

    def _route(
        self,
        method: str,
        name: str,
        doc: str,
        call: Call,
        arguments: dict[str, Any],
        returns: Any,
        *,
        at: bool = False,
        path: str = "",
        **route: Any,
    ) -> Route:
        """Return a route whose handler has these arguments, the caller, and the fields of the path
        if it is `at` a record. `path` is by default that of the records."""
        served, names = self._served, self._names if at else {}

        async def handler(**given: Any) -> Any:
            if at:
                address = {field: given.pop(names[field]) for field in served.fields}
                return await call(served, address=address, **given)
            return await call(served, **given)

        types = {**dict.fromkeys(names.values(), str), **arguments, "caller": Caller}
        handler.__name__ = name.replace("-", "_")
        handler.__doc__ = doc
        handler.__annotations__ = {**types, "return": returns}
        handler.__signature__ = Signature(  # type: ignore[attr-defined]  # read by `inspect`
            [Parameter(each, Parameter.KEYWORD_ONLY) for each in types]
        )
        path = path or self._path + (self._address if at else "")
        given = {names.get(name, name): text for name, text in field_docs(served.segments).items()}
        docs = {**COMMON, **given, **route.pop("docs", {})}
        problems = dict.fromkeys([*route.pop("problems", ()), PreparingError])
        return Route(
            method=method,
            path=path,
            handler=handler,
            tag=served.name,
            problems=[*problems],
            parameter_docs=docs,
            **route,
        )


def _no_parameter(served: ServedRecord, name: str) -> UsageError:
    """Return the error of a parameter that a PUT does not take."""
    if name == "ttl":
        return served.record.no_ttl()
    known = ["ttl"] if served.record.takes_ttl else []
    return UsageError("Unknown parameter.", name=name, known=known)
