"""The handlers of the HTTP routes: they resolve the space, call an operation, shape its answer."""

from typing import Annotated, Any
from urllib.parse import quote

import msgspec
from msgspec import UNSET, Meta

from keyhouse.auth import Caller
from keyhouse.errors import AccessError, KeyFieldError, UsageError
from keyhouse.http import Conditions, EventStream, Response, page_response
from keyhouse.schema.description import SchemaText, describe
from keyhouse.service.event_hub import EventHub
from keyhouse.service.limits import (
    IDEMPOTENCY_KEY_CHARS_MAX,
    SERVED_PAGE_ITEMS_MAX,
    SERVED_PAGE_KEYS_MAX,
)
from keyhouse.service.schema_service.answers import (
    ClearedRecords,
    CounterValue,
    FoundItems,
    ListedKeys,
    ServedItem,
    ServedPage,
    SummaryMembers,
    item_of,
    unreadable_item,
)
from keyhouse.service.schema_service.batch import EncodedBatch, SchemaBatchReply, run_batch
from keyhouse.service.schema_service.catalog import Catalog, ServedDerived, ServedRecord
from keyhouse.service.schema_service.document_types import texts_of
from keyhouse.service.schema_service.operations import (
    PAGE_ITEMS,
    OnUnreadableItem,
    SpaceOperations,
)
from keyhouse.service.schema_service.settings import SchemaSettings
from keyhouse.service.tenants import Tenants
from keyhouse.store import Event, UnreadableRow

__all__ = [
    "PAGE_ITEMS",
    "READ",
    "SPACES",
    "WRITE",
    "Increment",
    "KeyLimit",
    "Limit",
    "RecordAddresses",
    "SchemaHandlers",
    "SpaceHeader",
    "WriteHeaders",
]

READ = "read"
WRITE = "write"
SPACES = "spaces"
"""The scope of tokens that may name any space, by a header."""

Limit = Annotated[int, Meta(ge=1, le=SERVED_PAGE_ITEMS_MAX)]
KeyLimit = Annotated[int, Meta(ge=1, le=SERVED_PAGE_KEYS_MAX)]
Key = Annotated[str, Meta(min_length=1, max_length=IDEMPOTENCY_KEY_CHARS_MAX)]


class SpaceHeader(msgspec.Struct):
    """The space, for tokens with the scope `spaces`."""

    space: str | None = msgspec.field(default=None, name="Keyhouse-Space")


class WriteHeaders(SpaceHeader):
    key: Key | None = msgspec.field(default=None, name="Idempotency-Key")


class RecordAddresses(msgspec.Struct, forbid_unknown_fields=True):
    """The key fields of some records. A record that does not decode is an error, or with `skip` a
    null."""

    addresses: Annotated[list[dict[str, Any]], Meta(min_length=1, max_length=SERVED_PAGE_ITEMS_MAX)]
    unreadable: OnUnreadableItem = "raise"


class Increment(msgspec.Struct, forbid_unknown_fields=True):
    by: int


class SchemaHandlers:
    def __init__(
        self, catalog: Catalog, settings: SchemaSettings, tenants: Tenants[SpaceOperations]
    ) -> None:
        self._catalog = catalog
        only = catalog.schema.space.name
        self._fixed_space = settings.space if settings.space is not None else only
        self._tenants = tenants
        self._events = EventHub()
        self._encoders = {each.name: _encoder(each) for each in catalog.all("http")}
        text = describe(catalog.schema)
        shown = {each.name for each in catalog.all("http")}
        self._schema = msgspec.structs.replace(
            text, records=[each for each in text.records if each.name in shown]
        )

    def space(self, caller: Caller, headers: SpaceHeader) -> SpaceOperations:
        """Return the space of a request: a fixed one, the one that the header names for tokens that
        may, or the token's tenant."""
        name = self._fixed_space or caller.tenant
        if headers.space is not None and headers.space != name:
            if self._fixed_space is not None:
                raise AccessError("This service has one space.", space=self._fixed_space)
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

    # Records

    async def list(
        self, served: ServedRecord, query: Any, caller: Caller, headers: SpaceHeader
    ) -> Response[ServedPage]:
        return await page_response(await self._page(served, query, caller, headers), "items")

    async def list_events(
        self, served: ServedRecord, query: Any, caller: Caller, headers: SpaceHeader
    ) -> Response[ServedPage]:
        page = await self._page(served, query, caller, headers)
        page.revision = UNSET
        return await page_response(page, "items")

    async def _page(
        self, served: ServedRecord, query: Any, caller: Caller, headers: SpaceHeader
    ) -> ServedPage:
        return await self.space(caller, headers).page(served, texts_of(query), **_paging(query))

    async def get(
        self,
        served: ServedRecord,
        address: dict[str, str],
        caller: Caller,
        headers: SpaceHeader,
        conditions: Conditions,
    ) -> Response[ServedItem]:
        item = await self.space(caller, headers).get(served, served.of_texts(address))
        return Response(item, etag=item.revision)

    async def lookup(
        self, served: ServedRecord, query: Any, caller: Caller, headers: SpaceHeader
    ) -> Response[ServedItem]:
        by = served.lookups[query.by]
        item = await self.space(caller, headers).lookup(served, by, _row_fields(by, query))
        return Response(item, etag=item.revision)

    async def get_many(
        self, served: ServedRecord, body: RecordAddresses, caller: Caller, headers: SpaceHeader
    ) -> FoundItems | Response[FoundItems]:
        found = await self.space(caller, headers).get_many(
            served, body.addresses, unreadable=body.unreadable
        )
        return found if served.kind == "counter" else await page_response(found, "items")

    async def keys(
        self, served: ServedRecord, query: Any, caller: Caller, headers: SpaceHeader
    ) -> ListedKeys:
        return await self.space(caller, headers).keys(served, texts_of(query), **_paging(query))

    async def record_count(
        self, served: ServedRecord, query: Any, caller: Caller, headers: SpaceHeader
    ) -> CounterValue:
        by = served.counts[query.by]
        fields = _row_fields(by, query)
        return await self.space(caller, headers).record_count(served, by, fields)

    async def members(
        self, served: ServedRecord, query: Any, caller: Caller, headers: SpaceHeader
    ) -> SummaryMembers:
        by = served.summaries[query.by]
        return await self.space(caller, headers).members(served, by, _row_fields(by, query))

    async def create(
        self, served: ServedRecord, body: Any, query: Any, caller: Caller, headers: SpaceHeader
    ) -> Response[ServedItem]:
        fields = _given(served, query)
        item = await self.space(caller, headers).create(served, body, fields)
        return Response(
            _for(caller, item),
            status=201,
            headers=(("Location", _location(served, item)),),
            etag=item.revision,
        )

    async def put(
        self,
        served: ServedRecord,
        address: dict[str, str],
        body: Any,
        query: Any,
        caller: Caller,
        headers: SpaceHeader,
        conditions: Conditions,
    ) -> Response[ServedItem]:
        item, is_new = await self.space(caller, headers).put(
            served,
            body,
            served.of_texts(address),
            check=conditions.check,
            ttl=getattr(query, "ttl", None),
        )
        return Response(_for(caller, item), status=201 if is_new else 200, etag=item.revision)

    async def patch(
        self,
        served: ServedRecord,
        address: dict[str, str],
        body: Any,
        caller: Caller,
        headers: SpaceHeader,
        conditions: Conditions,
    ) -> Response[ServedItem]:
        item = await self.space(caller, headers).patch(
            served, body, served.of_texts(address), check=conditions.check
        )
        return Response(_for(caller, item), etag=item.revision)

    async def delete(
        self,
        served: ServedRecord,
        address: dict[str, str],
        caller: Caller,
        headers: SpaceHeader,
        conditions: Conditions,
    ) -> None:
        given = conditions.if_match is not None or conditions.if_none_match is not None
        await self.space(caller, headers).delete(
            served, served.of_texts(address), check=conditions.check if given else None
        )

    # Counters, logs, batches

    async def count(
        self, served: ServedRecord, address: dict[str, str], caller: Caller, headers: SpaceHeader
    ) -> CounterValue:
        return await self.space(caller, headers).count(served, served.of_texts(address))

    async def sum_of_days(
        self, served: ServedRecord, query: Any, caller: Caller, headers: SpaceHeader
    ) -> CounterValue:
        space = self.space(caller, headers)
        return await space.sum_of_days(served, query.days, served.of_texts(texts_of(query)))

    async def add(
        self,
        served: ServedRecord,
        address: dict[str, str],
        body: Increment,
        caller: Caller,
        headers: WriteHeaders,
    ) -> CounterValue:
        return await self.space(caller, headers).add(
            served,
            body.by,
            served.of_texts(address),
            key=headers.key,
            shows_value=READ in caller.scopes,
        )

    async def append(
        self, served: ServedRecord, body: Any, query: Any, caller: Caller, headers: SpaceHeader
    ) -> Response[ServedItem]:
        space = self.space(caller, headers)
        item = await space.append(served, body, _given(served, query))
        return Response(_for(caller, item), status=201, etag=item.revision)

    async def batch(
        self, body: EncodedBatch, caller: Caller, headers: WriteHeaders
    ) -> SchemaBatchReply:
        """Apply several operations: all of them, or none."""
        reply = await run_batch(
            self.space(caller, headers),
            self._catalog,
            body.operations,
            protocol="http",
            key=headers.key,
        )
        for item in reply.items or ():
            if item is not None:
                _for(caller, item)
        return reply

    # The whole schema

    async def watch(self, query: Any, caller: Caller, headers: SpaceHeader) -> EventStream:
        """Stream the changes of a record as Server-Sent Events.

        An event is `put` or `gone`, and its data an item; or `unreadable`, for a row that does not
        decode, with its `key`, `revision`, `type` and `detail`. The last event of a commit has its
        revision as id. After `expired`, list again and watch since the revision of that list.
        """
        served = self._catalog.find("http", query.record)
        texts = texts_of(query)
        if unknown := sorted(set(texts) - set(served.fields)):
            raise UsageError(
                "The record has no such key field.", field=unknown[0], known=list(served.fields)
            )
        fields = served.of_texts(texts)
        store = await self.space(caller, headers).watched_store()
        store.span(served.record, **fields)  # raises for fields that are not the leading ones
        return self._events.stream(
            store,
            served.record,
            since=query.since,
            encode=self._encoders[served.name],
            encode_unreadable=_unreadable_event,
            **fields,
        )

    async def clear(self, caller: Caller, headers: SpaceHeader) -> ClearedRecords:
        """Delete the records of the space, some at a time: repeat it while there are `more`."""
        self._catalog.check_clear("http")
        return await self.space(caller, headers).clear()

    async def schema(self, caller: Caller) -> SchemaText:
        """Describe the keyspace: records, key patterns, derived rows, migrations."""
        return self._schema


def _row_fields(by: ServedDerived[Any], query: Any) -> dict[str, Any]:
    """Return the key fields of one derived row. Raises UsageError for fewer or others."""
    texts = texts_of(query)
    if texts.keys() != set(by.fields):
        raise UsageError(
            "The request needs the fields of its row, and no others.",
            by=by.name,
            fields=list(by.fields),
        )
    return {name: by.value_of_text(name, text) for name, text in texts.items()}


def _paging(query: Any) -> dict[str, Any]:
    """Return the arguments of a page: the row that it is by, order, limit and cursor."""
    return {
        "by": getattr(query, "by", None),
        "order": query.order,
        "limit": query.limit,
        "cursor": query.cursor,
    }


def _given(served: ServedRecord, query: Any) -> dict[str, Any]:
    return served.of_texts(texts_of(query)) if query is not None else {}


def _for(caller: Caller, item: ServedItem) -> ServedItem:
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


def _encoder(served: ServedRecord) -> Any:
    def encode(event: Event[Any]) -> tuple[str, Any]:
        return "gone" if event.gone else "put", item_of(served, event, event.revision)

    return encode


def _unreadable_event(unreadable: UnreadableRow) -> tuple[str, Any]:
    return "unreadable", unreadable_item(unreadable)
