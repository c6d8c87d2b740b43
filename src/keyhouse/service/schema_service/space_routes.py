"""The HTTP routes of a whole space: batch, watch, clear, and the description of the schema."""

from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from typing import Any, Final

import msgspec

from keyhouse.auth import Caller
from keyhouse.errors import (
    AccessError,
    ContentionError,
    CounterError,
    KeyhouseError,
    LimitError,
    LinkError,
    NotFoundError,
    PreparingError,
    QuotaError,
    RecordError,
    UniqueError,
    UnknownOutcomeError,
)
from keyhouse.http import Route
from keyhouse.service.schema_service.batch import SchemaBatch
from keyhouse.service.schema_service.catalog import Catalog, Kind, ServedRecord
from keyhouse.service.schema_service.document_types import choice, parameters
from keyhouse.service.schema_service.handlers import READ, WRITE, SchemaHandlers, SpaceHeader
from keyhouse.service.schema_service.parameter_docs import COMMON

__all__ = ["WRITE_PROBLEMS", "space_routes"]

WRITE_PROBLEMS: Final[tuple[type[KeyhouseError], ...]] = (
    QuotaError,
    RecordError,
    LimitError,
    UniqueError,
    LinkError,
    ContentionError,
    UnknownOutcomeError,
    PreparingError,
)


def space_routes(catalog: Catalog, on: SchemaHandlers) -> list[tuple[str, Route]]:
    """Return the routes, each with the name of its operation."""
    found: list[tuple[str, Route]] = []
    if any(each.is_writable for each in catalog.all("http")):
        found += [("batch", _batch(catalog, on)), ("clear", _clear(on))]
    if watched := catalog.all("http"):
        found.append(("watch", _watch(catalog, on, watched)))
    schema = Route(method="GET", path="/schema", handler=on.schema, scope=READ, tag="schema")
    return [*found, ("schema", schema)]


def _clear(on: SchemaHandlers) -> Route:
    problems = [AccessError, ContentionError, UnknownOutcomeError, PreparingError]
    return Route(
        method="POST",
        path="/clear",
        handler=on.clear,
        scope=WRITE,
        problems=problems,
        tag="batch",
        parameter_docs=COMMON,
    )


def _batch(catalog: Catalog, on: SchemaHandlers) -> Route:
    return Route(
        method="POST",
        path="/batch",
        handler=on.batch,
        scope=WRITE,
        problems=[NotFoundError, AccessError, CounterError, *WRITE_PROBLEMS],
        body_type=SchemaBatch,
        example={"operations": [*_example_operations(catalog)]},
        tag="batch",
        parameter_docs=COMMON,
    )


def _example_operations(catalog: Catalog) -> Iterator[dict[str, Any]]:
    """Yield an operation on one counter and one record of the schema, if there are such."""
    kinds: dict[Kind, dict[str, Any]] = {
        "counter": {"op": "add", "by": 1},
        "record": {"op": "delete"},
    }
    for kind, members in kinds.items():
        writable = [each for each in catalog.all("http", kind) if each.is_writable]
        for served in writable[:1]:
            yield {**members, kind: served.name, "fields": served.example_fields()}


def _watch(catalog: Catalog, on: SchemaHandlers, watched: Any) -> Route:
    fields = dict.fromkeys([name for served in watched for name in served.fields])
    query = parameters(
        "Watch",
        [*fields],
        [
            ("record", choice([each.name for each in watched]), msgspec.NODEFAULT),
            ("since", int | None, None),
        ],
        invalid=partial(_not_watched, catalog),
    )

    async def watch(query: Any, caller: Caller, headers: SpaceHeader) -> Any:
        return await on.watch(query, caller, headers)

    watch.__doc__ = on.watch.__doc__
    watch.__annotations__ = {**on.watch.__annotations__, "query": query}
    docs = COMMON | {name: text for each in watched for name, text in _fields(each).items()}
    return Route(
        method="GET",
        path="/watch",
        handler=watch,
        scope=READ,
        problems=[AccessError, PreparingError],
        tag="watch",
        parameter_docs=docs,
    )


def _not_watched(catalog: Catalog, parameter: str, value: str) -> AccessError | None:
    """Return the error of a closed record. The document does not have it, so the parameter does not
    take it."""
    with suppress(NotFoundError):
        try:
            catalog.find("http", value)
        except AccessError as error:
            return error
    return None


def _fields(served: ServedRecord) -> dict[str, str]:
    return {
        name: f"Only those whose `{name}` is this: {segment.description}."
        for name, segment in served.segments.items()
    }
