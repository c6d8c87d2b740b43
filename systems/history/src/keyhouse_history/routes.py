"""The HTTP routes. A handler checks access, reads the request, calls an operation, and shapes the
response.

A caller reaches the profile of its token, and those that the token lists. The scope
`history.service` reaches every profile. Another profile is rejected whether or not it exists.
"""

from collections.abc import Iterable, Mapping
from typing import Any, Final

import msgspec

from keyhouse.auth import Caller
from keyhouse.errors import (
    ConflictError,
    CursorError,
    DocumentError,
    EngineError,
    KeyFieldError,
    KeyhouseError,
    LimitError,
    NotFoundError,
    QuotaError,
    ScopeError,
    UsageError,
)
from keyhouse.http import EventStream, Response, ResponseSpec, Route, RouteGroup, page_response
from keyhouse.service.event_hub import EventHub
from keyhouse.service.runtime import ServiceRuntime
from keyhouse.store import verify
from keyhouse_history import facets, messages
from keyhouse_history.events import (
    StoredEvent,
    check_asset,
    decode_event,
    delete_asset,
    make_event,
    store_events,
)
from keyhouse_history.facets import FacetPage, FoundEntry
from keyhouse_history.fold import ViewingEvent
from keyhouse_history.messages import AssetId, Type
from keyhouse_history.messages import Profile as ProfileName
from keyhouse_history.profiles import Profile
from keyhouse_history.schema import ENTRY
from keyhouse_history.settings import HistorySettings

READ: Final = "read"
WRITE: Final = "write"
SERVICE_SCOPE: Final = "history.service"

_AT: Final = "/profiles/{profile}"
_FAILURES: Final = 500
_encode: Final = msgspec.json.Encoder().encode


class HistoryHandlers:
    def __init__(self, runtime: ServiceRuntime[Profile], settings: HistorySettings) -> None:
        self._tenants = runtime.tenants
        self._percent = settings.completed_percent
        self._hub = EventHub()

    async def put(
        self, profile: ProfileName, asset: AssetId, body: messages.ViewingBody, caller: Caller
    ) -> messages.EventReply:
        """Store a viewing of an asset, by the rules for events in any order."""
        history = self._profile(profile, caller, WRITE)
        check_asset(asset)
        stored = await store_events(history, [self._event(asset, body)])
        entry = msgspec.Raw(_encode(stored.entry))
        return messages.EventReply(entry, stored.applied, _stored(stored))

    async def events(
        self, profile: ProfileName, body: messages.EventsBody, caller: Caller
    ) -> messages.EventsReply:
        """Store many viewings, each by itself: one that is invalid does not stop the others."""
        history = self._profile(profile, caller, WRITE)
        results: list[messages.EventResult | None] = []
        valid: list[tuple[int, int, ViewingEvent]] = []
        for number, plain in enumerate(body.events):
            try:
                event = self._batch_event(plain)
                valid.append((event.at, number, event))
                results.append(None)
            except KeyhouseError as error:
                results.append(_failure(plain, error))
        for _, number, event in sorted(valid, key=lambda each: each[:2]):
            results[number] = await _result(history, event, body.events[number])
        done = [each for each in results if each is not None]
        return messages.EventsReply(
            done,
            applied=sum(each.applied is True for each in done),
            failed=sum(each.error is not msgspec.UNSET for each in done),
        )

    async def get(
        self, profile: ProfileName, asset: AssetId, caller: Caller
    ) -> messages.AssetReply:
        """Return the entries of an asset: in progress, completed, or both."""
        store = self._profile(profile, caller, READ).store
        entries = await facets.entries_of(store, asset)
        if not entries:
            raise NotFoundError("The profile has no such asset.", asset=asset)
        return messages.AssetReply(_raws(entries))

    async def assets(
        self, profile: ProfileName, type: Type, query: messages.AssetQuery, caller: Caller
    ) -> Response[messages.FacetReply]:
        """List the entries, newest first: all, or those of some assets."""
        store = self._profile(profile, caller, READ).store
        options: Any = {"limit": query.limit, "cursor": query.cursor}
        assets = _listed(query.assets)
        if query.assets:
            page = await facets.by_assets(store, type, assets, **options)
        else:
            page = await facets.newest_entries(store, type, **options)
        return await page_response(
            messages.FacetReply(_raws(page.entries), _cursor(page)), "entries"
        )

    async def show(
        self,
        profile: ProfileName,
        show: str,
        type: Type,
        query: messages.ShowQuery,
        caller: Caller,
    ) -> Response[messages.ShowReply]:
        """List the entries of a show, or of some of its seasons, newest first."""
        store = self._profile(profile, caller, READ).store
        page = await facets.by_show(
            store, type, show, query.season, limit=query.limit, cursor=query.cursor
        )
        current = None if page.current is None else msgspec.Raw(page.current.value)
        reply = messages.ShowReply(_raws(page.entries), current, _counts(page), _cursor(page))
        return await page_response(reply, "entries")

    async def sport(
        self,
        profile: ProfileName,
        sport: str,
        type: Type,
        query: messages.SportQuery,
        caller: Caller,
    ) -> Response[messages.SportReply]:
        """List the entries of a sport, or of a series or a team in it, newest first."""
        store = self._profile(profile, caller, READ).store
        page = await facets.by_sport(
            store,
            type,
            sport,
            series=query.series,
            team=query.team,
            limit=query.limit,
            cursor=query.cursor,
        )
        reply = messages.SportReply(_raws(page.entries), _counts(page), _cursor(page))
        return await page_response(reply, "entries")

    async def delete(self, profile: ProfileName, asset: AssetId, caller: Caller) -> None:
        """Delete the entries of an asset. Succeeds if there are none."""
        history = self._profile(profile, caller, WRITE)
        try:
            check_asset(asset)
        except KeyFieldError:
            return  # no entry can have it
        await delete_asset(history, asset)

    async def forget(self, profile: ProfileName, caller: Caller) -> None:
        """Erase the whole profile, also from the log of changes. Succeeds if there is nothing.

        Repeat a request that was interrupted: it continues.
        """
        await self._profile(profile, caller, WRITE).forget()

    async def reindex(self, profile: ProfileName, caller: Caller) -> messages.ReindexReply:
        """Compare all summaries, paths and lists with the entries, and repair them, while others
        write."""
        caller.require(SERVICE_SCOPE)
        store, checked, repaired = self._tenants.get(profile).store, 0, 0

        def count(rows: int) -> None:
            nonlocal checked
            checked = rows

        async for finding in verify(store, repair=True, on_progress=count):
            repaired += finding.repaired
        return messages.ReindexReply(checked, repaired)

    async def watch(
        self, profile: ProfileName, query: messages.WatchQuery, caller: Caller
    ) -> EventStream:
        """Stream the changes of the profile's entries as Server-Sent Events: `put` with the entry
        as `value`, and `gone`."""
        store = self._profile(profile, caller, READ).store
        return self._hub.stream(store, ENTRY, since=query.since)

    def _profile(self, name: str, caller: Caller, scope: str) -> Profile:
        if SERVICE_SCOPE not in caller.scopes:
            caller.require_tenant(name)
            caller.require(scope)
        return self._tenants.get(name)

    def _event(self, asset: str, body: messages.ViewingBody) -> ViewingEvent:
        return make_event(
            asset_id=asset,
            asset_type=body.asset_type,
            total_time=body.total_time,
            progress=body.progress,
            update_time=body.update_time,
            state=body.state,
            ext=body.ext,
            completed_percent=self._percent,
        )

    def _batch_event(self, plain: Any) -> ViewingEvent:
        body: messages.BatchEvent = decode_event(plain, messages.BatchEvent)
        check_asset(body.asset_id)
        return self._event(body.asset_id, body)


async def _result(profile: Profile, event: ViewingEvent, plain: Any) -> messages.EventResult:
    try:
        stored = await store_events(profile, [event])
    except KeyhouseError as error:
        return _failure(plain, error)
    return messages.EventResult(event.asset_id, stored.applied, _stored(stored))


def _stored(event: StoredEvent) -> bool | msgspec.UnsetType:
    return msgspec.UNSET if event.stored else False


def _failure(plain: Any, error: KeyhouseError) -> messages.EventResult:
    """Return the error of one event; of an engine's errors, only the sentence."""
    asset = plain.get("assetId") if isinstance(plain, dict) else None
    detail = error.sentence if error.status >= _FAILURES else str(error)
    return messages.EventResult(asset, error=messages.EventError(error.code, detail))


def _listed(values: Iterable[str]) -> list[str]:
    """Return the ids in a repeated parameter: each value is one id, or a list with commas."""
    ids = dict[str, None]()
    for value in values:
        ids |= dict.fromkeys((value, *(part.strip() for part in value.split(","))))
    return [id for id in ids if id]


def _raws(entries: Iterable[FoundEntry]) -> list[msgspec.Raw]:
    return [msgspec.Raw(each.value) for each in entries]


def _counts(page: FacetPage) -> messages.StateCounts:
    return messages.StateCounts(page.in_progress, page.completed)


def _cursor(page: FacetPage) -> Any:
    return page.cursor or msgspec.UNSET


def routes(runtime: ServiceRuntime[Profile], settings: HistorySettings) -> Mapping[str, Route]:
    """Return the routes by operation. Any caller may call; the handler checks its profile."""
    on = HistoryHandlers(runtime, settings)
    entry, example = messages.ENTRY_EXAMPLE, messages.EVENT_EXAMPLE
    stored = ResponseSpec(type=messages.EventReply, example={"entry": entry, "applied": True})
    entries = ResponseSpec(type=messages.AssetReply, example={"entries": [entry]})
    denied = [ScopeError, KeyFieldError]
    writes = [*denied, UsageError, DocumentError, LimitError, QuotaError, ConflictError]
    pages = [*denied, UsageError, CursorError]

    api = RouteGroup(_AT, scope="")

    return {
        "put": api.put(
            "/assets/{asset}",
            on.put,
            replies={200: stored},
            problems=writes,
            example=example,
        ),
        "events": api.post(
            "/events",
            on.events,
            problems=writes,
            example={"events": [{"assetId": "1981", **example}]},
        ),
        "get": api.get(
            "/assets/{asset}",
            on.get,
            replies={200: entries},
            problems=[*denied, NotFoundError],
        ),
        "assets": api.get("/facets/asset/{type}", on.assets, problems=pages),
        "show": api.get("/facets/show/{show}/{type}", on.show, problems=pages),
        "sport": api.get("/facets/sport/{sport}/{type}", on.sport, problems=pages),
        "delete": api.delete("/assets/{asset}", on.delete, problems=writes),
        "forget": api.delete("", on.forget, problems=[*denied, ConflictError, EngineError]),
        "reindex": api.post("/reindex", on.reindex, problems=denied),
        "watch": api.get("/watch", on.watch, problems=denied),
    }
