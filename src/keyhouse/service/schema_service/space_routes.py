"""The HTTP routes of a whole space: batch, watch, clear, operations of one's own, and the
description of the schema."""

from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from typing import Any

import msgspec
from msgspec import UNSET

from keyhouse.advice.nearest import nearest
from keyhouse.auth import Caller
from keyhouse.errors import AccessError, ConflictError, NotFoundError, UsageError
from keyhouse.http import EventStream, Route
from keyhouse.operations.batch import SchemaBatchReply
from keyhouse.operations.catalog import Catalog, ServedRecord
from keyhouse.operations.record_verbs import WRITE_PROBLEMS
from keyhouse.operations.replies import item_of, unreadable_item
from keyhouse.operations.table import SPACE_VERBS, WATCH
from keyhouse.operations.verb import Verb
from keyhouse.schema import Operation
from keyhouse.schema.description import SchemaText, describe
from keyhouse.schema.operation import Access
from keyhouse.service.event_hub import EventHub
from keyhouse.service.schema_service.document_types import choice, parameters, texts_of
from keyhouse.service.schema_service.own_operations import call_operation
from keyhouse.service.schema_service.parameter_docs import COMMON
from keyhouse.service.schema_service.routes import (
    READ,
    CallerSpaces,
    Named,
    SpaceHeader,
    argument_reader,
    argument_types,
    shown_to,
)
from keyhouse.store import Event, UnreadableRow

__all__ = ["space_routes"]


def space_routes(catalog: Catalog, spaces: CallerSpaces) -> list[Named]:
    """Return the routes of a space, each with the name of its operation."""
    open_records = catalog.all("http")
    is_served: dict[Access, bool] = {
        "read": bool(open_records),
        "write": any(each.is_writable for each in open_records),
    }
    verbs = [
        (verb.name, _route(verb, catalog, spaces, open_records))
        for verb in SPACE_VERBS
        if is_served[verb.access]
    ]
    own = [(each.name, _own(each, spaces)) for each in catalog.schema.operations]
    return [*verbs, ("schema", _schema(catalog, open_records)), *own]


def _route(
    verb: Verb, catalog: Catalog, spaces: CallerSpaces, open_records: Sequence[ServedRecord]
) -> Route:
    """Return the route of a verb of the whole space."""
    parts = (
        _watch(catalog, spaces, open_records) if verb is WATCH else _function(verb, catalog, spaces)
    )
    return Route(
        method=verb.method,
        path=verb.path,
        name=verb.name,
        doc=str(verb.docs),
        scope=verb.access,
        problems=verb.problems,
        **parts,
    )


def _function(verb: Verb, catalog: Catalog, spaces: CallerSpaces) -> dict[str, Any]:
    """Return the parts of a route that runs the function of a verb."""
    run, read = verb.run, argument_reader(verb)
    assert run is not None, "only a watch has none"

    async def handler(**given: Any) -> Any:
        space = spaces.of(given["caller"], given["headers"])
        arguments: dict[str, Any] = {}
        read(given, arguments)
        reply = await run(space, catalog, "http", **arguments)
        if type(reply) is SchemaBatchReply:
            for item in reply.items or ():
                if item is not None:
                    shown_to(given["caller"], item)
        return reply

    return {
        "handler": handler,
        "parameters": {**argument_types(verb), "caller": Caller},
        "result": verb.reply,
        "body_type": verb.described_as,
        "example": UNSET if verb.example is None else verb.example(catalog),
        "parameter_docs": COMMON,
        "tag": "batch",
    }


def _watch(
    catalog: Catalog, spaces: CallerSpaces, watched: Sequence[ServedRecord]
) -> dict[str, Any]:
    """Return the parts of the route of a watch."""
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
    events, encoders = EventHub(), {each.name: partial(_event, each) for each in watched}

    async def watch(query: Any, caller: Caller, headers: SpaceHeader) -> EventStream:
        served = catalog.find("http", query.record)
        texts = texts_of(query)
        if unknown := sorted(set(texts) - set(served.fields)):
            raise UsageError(
                "The record has no such key field.",
                field=unknown[0],
                **nearest(unknown[0], served.fields),
            )
        named = served.of_texts(texts)
        store = await spaces.of(caller, headers).watched_store()
        store.span(served.record, **named)  # raises for fields that are not the leading ones
        return events.stream(
            store,
            served.record,
            since=query.since,
            encode=encoders[served.name],
            encode_unreadable=_unreadable_event,
            **named,
        )

    return {
        "handler": watch,
        "parameters": {"query": query, "headers": SpaceHeader, "caller": Caller},
        "result": EventStream,
        "parameter_docs": COMMON
        | {name: text for each in watched for name, text in _fields(each).items()},
        "tag": "watch",
    }


def _event(served: ServedRecord, event: Event[Any]) -> tuple[str, Any]:
    return "gone" if event.gone else "put", item_of(served, event, event.revision)


def _unreadable_event(unreadable: UnreadableRow) -> tuple[str, Any]:
    return "unreadable", unreadable_item(unreadable)


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


def _schema(catalog: Catalog, served: Sequence[ServedRecord]) -> Route:
    text = describe(catalog.schema)
    names = {each.name for each in served}
    described = msgspec.structs.replace(
        text, records=[each for each in text.records if each.name in names]
    )

    async def schema(caller: Caller) -> SchemaText:
        """Describe the keyspace: records, key patterns, derived rows, migrations."""
        return described

    return Route(method="GET", path="/schema", handler=schema, scope=READ, tag="schema")


def _own(operation: Operation[Any, Any], spaces: CallerSpaces) -> Route:
    """Return the route of an operation of one's own."""

    async def handler(*, caller: Caller, headers: SpaceHeader, body: Any = None) -> Any:
        return await call_operation(spaces.of(caller, headers), operation, body)

    types: dict[str, Any] = {"caller": Caller, "headers": SpaceHeader}
    if operation.request is not None:
        types["body"] = operation.request
    return Route(
        method="POST",
        path=f"/operations/{operation.name}",
        handler=handler,
        parameters=types,
        result=operation.reply or type(None),
        name=operation.name,
        doc=operation.doc or f"Run the operation {operation.name}.",
        scope=operation.access,
        problems=[NotFoundError, ConflictError, *WRITE_PROBLEMS],
        tag="operations",
    )
