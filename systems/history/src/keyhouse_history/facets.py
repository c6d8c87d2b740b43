"""Facets: the entries of a profile by asset, by show and by sport, newest first, in pages.

All entries are read in the order of the `newest|…` rows, a page at a time, so that a page costs the
same in any profile. A show or a sport is found by its path rows, and sorted in memory: a page of it
costs what the show costs. A position in any list is the time, asset and state of its last entry.
"""

from collections.abc import AsyncGenerator, Callable, Collection, Iterable, Iterator
from contextlib import aclosing
from typing import Any, Final, Literal, NamedTuple

import msgspec

from keyhouse.engine import Row
from keyhouse.errors import DataError, KeyFieldError, UsageError
from keyhouse.keys import Span
from keyhouse.schema import BoundSummary, Index
from keyhouse.store import Store, decode_cursor, encode_cursor, invalid_cursor
from keyhouse_history.events import STATES
from keyhouse_history.fold import COMPLETED, IN_PROGRESS
from keyhouse_history.limits import ASSETS_ASKED_MAX, MOMENT_MAX, PAGE_BYTES_MAX
from keyhouse_history.paths import Parts, teams
from keyhouse_history.schema import (
    ASSETS_OF_TEAM,
    BY_HIERARCHY,
    BY_SPORT,
    ENTRY,
    NEWEST,
    HistoryEntry,
    State,
    moment_of,
)

__all__ = [
    "FacetPage",
    "FacetType",
    "FoundEntry",
    "by_assets",
    "by_show",
    "by_sport",
    "entries_of",
    "newest_entries",
]

FacetType = Literal["all", "resume", "watched"]

Position = tuple[int, str, str]
"""The time, asset and state of an entry."""

_STATES_OF: Final[dict[FacetType, tuple[State, ...]]] = {
    "all": STATES,
    "resume": (IN_PROGRESS,),
    "watched": (COMPLETED,),
}


_SHORT_READ_ROWS: Final = 1_000
"""Pages of more rows are read in turns with those of other profiles."""


def _order(position: Position) -> Position:
    """Newest first, then by asset."""
    moment, asset, state = position
    return (-moment, asset, state)


class FoundEntry(NamedTuple):
    """An entry and its JSON as it is stored."""

    position: Position
    entry: HistoryEntry
    value: bytes

    @property
    def order(self) -> Position:
        return _order(self.position)


class FacetPage(msgspec.Struct, frozen=True):
    """One page. `current` and the numbers by state are of the whole facet, not of the page."""

    entries: list[FoundEntry]
    cursor: str | None = None
    current: FoundEntry | None = None
    in_progress: int = 0
    completed: int = 0


async def entries_of(store: Store, asset: str) -> list[FoundEntry]:
    """Return the entries of an asset, newest first. Raises UnreadableError if one does not decode,
    as a write of the asset does."""
    return await _read(store, [(state, asset) for state in STATES], skips_unreadable=False)


async def newest_entries(
    store: Store, kind: FacetType, *, limit: int, cursor: str | None
) -> FacetPage:
    """Return a page of all entries, or of those in one state."""
    tag = f"asset/{kind}"
    after = _decode_cursor(tag, cursor)
    entries: list[FoundEntry] = []
    positions = _newest_positions(store, _STATES_OF[kind], limit + 1, after)
    async with aclosing(positions):
        async for chunk in positions:
            entries += await _read_listed(store, kind, chunk)
            if len(entries) > limit:
                break
    return _page(tag, entries, limit)


async def by_assets(
    store: Store, kind: FacetType, assets: Collection[str], *, limit: int, cursor: str | None
) -> FacetPage:
    """Return a page of the entries of these assets."""
    if len(assets) > ASSETS_ASKED_MAX:
        raise UsageError("Too many assets.", assets=len(assets), limit=ASSETS_ASKED_MAX)
    tag = f"assets/{kind}"
    after = _decode_cursor(tag, cursor)
    addresses = [(state, asset) for asset in dict.fromkeys(assets) for state in STATES]
    entries = _chosen(await _read(store, addresses), kind)
    return _page(tag, _after(entries, after), limit)


async def by_show(
    store: Store,
    kind: FacetType,
    show: str,
    seasons: Collection[str],
    *,
    limit: int,
    cursor: str | None,
) -> FacetPage:
    """Return a page of the entries of a show, or of some of its seasons."""
    tag = f"show/{kind}"
    after = _decode_cursor(tag, cursor)
    paths: list[Parts] = [(show, season) for season in seasons] if seasons else [(show,)]
    entries = await _at_paths(store, BY_HIERARCHY, paths)
    page = _counted_page(tag, entries, kind, after, limit)
    return msgspec.structs.replace(page, current=_current(entries))


async def by_sport(
    store: Store,
    kind: FacetType,
    sport: str,
    *,
    series: str | None,
    team: str | None,
    limit: int,
    cursor: str | None,
) -> FacetPage:
    """Return a page of the entries of a sport, or of a series or a team in it."""
    tag = f"sport/{kind}"
    after = _decode_cursor(tag, cursor)
    if team is not None and series is None:
        raise UsageError("A team belongs to a series: name the series, too.", team=team)
    if series is None:
        entries = await _at_paths(store, BY_SPORT, [(sport,)])
    elif team is None:
        entries = await _at_paths(store, BY_SPORT, [(sport, series)])
    else:
        entries = await _of_team(store, sport, series, team)
    return _counted_page(tag, entries, kind, after, limit)


def _current(entries: list[FoundEntry]) -> FoundEntry | None:
    """Return the newest entry; of those of one time, the first in progress."""

    def order(each: FoundEntry) -> tuple[int, bool]:
        moment, _, state = each.position
        return (-moment, state == COMPLETED)

    return min(entries, key=order, default=None)


async def _of_team(store: Store, sport: str, series: str, team: str) -> list[FoundEntry]:
    """Read the assets that the team's row lists; if it lacks some, the whole series."""
    try:
        listed = store.binding.derived(ASSETS_OF_TEAM, BoundSummary)
        key = listed.template.build({"sport": sport, "series": series, "team": team})
    except KeyFieldError:
        return []
    row = await store.row(key)
    if row is None:
        return []
    if listed.is_truncated(row.value):
        entries = await _at_paths(store, BY_SPORT, [(sport, series)])
    else:
        assets = listed.members(row.value)
        entries = await _read(store, [(state, asset) for asset in assets for state in STATES])
    wanted = (sport, series)
    return [
        each
        for each in entries
        if (each.entry.ext.get("sport"), each.entry.ext.get("series-id")) == wanted
        and team in teams(each.entry.ext)
    ]


async def _at_paths(store: Store, index: Index, paths: Iterable[Parts]) -> list[FoundEntry]:
    """Read the entries at these paths, newest first."""
    template = store.binding.derived(index).template
    addresses: dict[tuple[State, str], None] = {}
    for path in paths:
        try:
            span = store.span(index, path=path)
        except KeyFieldError:  # no entry has such a path
            continue
        async with aclosing(store.row_scan(span, keys_only=True)) as rows:
            async for row in rows:
                fields: Any = template.parse(row.key)
                if fields is not None:
                    addresses[fields["state"], fields["asset"]] = None
    return await _read(store, list(addresses))


def _counted_page(
    tag: str, entries: list[FoundEntry], kind: FacetType, after: Position | None, limit: int
) -> FacetPage:
    chosen = _chosen(entries, kind)
    in_progress = sum(each.entry.attr.state == IN_PROGRESS for each in chosen)
    page = _page(tag, _after(chosen, after), limit)
    return msgspec.structs.replace(
        page, in_progress=in_progress, completed=len(chosen) - in_progress
    )


def _chosen(entries: list[FoundEntry], kind: FacetType) -> list[FoundEntry]:
    """Return the entries of the facet, newest first; of both entries of an asset, the newer one."""
    states = _STATES_OF[kind]
    chosen = [each for each in entries if each.entry.attr.state in states]
    if kind != "all":
        return chosen
    newest: dict[str, FoundEntry] = {}
    for each in chosen:
        newest.setdefault(each.entry.attr.asset_id, each)
    return list(newest.values())


async def _newest_positions(
    store: Store, states: Collection[State], count: int, after: Position | None
) -> AsyncGenerator[list[Position], None]:
    """Iterate over the positions of entries in these states, newest first, in chunks of at most
    `count`: the first has what a page needs, as a rule.

    Entries of one time are in the order of their assets, which is not that of their keys:
    `…|10|…` is before `…|1|…`. So all keys of a time are read before the first is returned.
    """
    tied: list[Position] = []
    pages = _newest_rows(store, states, count + 2, None if after is None else after[0])
    async with aclosing(pages):
        async for page in pages:
            tied += page
            if not tied or tied[0][0] == tied[-1][0]:
                continue
            complete = [each for each in tied if each[0] != tied[-1][0]]
            tied = tied[len(complete) :]
            for chunk in _chunks(complete, count, after):
                yield chunk
    for chunk in _chunks(tied, count, after):
        yield chunk


def _chunks(
    positions: list[Position], count: int, after: Position | None
) -> Iterator[list[Position]]:
    """Sort positions, leave out those up to `after`, and divide them."""
    ordered = sorted(positions, key=_order)
    if after is not None:
        ordered = [each for each in ordered if _order(each) > _order(after)]
    for start in range(0, len(ordered), count):
        yield ordered[start : start + count]


async def _newest_rows(
    store: Store, states: Collection[State], limit: int, since: int | None
) -> AsyncGenerator[list[Position], None]:
    """Iterate over the positions in the order of their keys, from a time on, in pages that grow."""
    template = store.binding.derived(NEWEST).template
    span = store.span(NEWEST)
    if since is not None:
        span = Span(store.span(NEWEST, at=since).start, span.stop)

    def position(row: Row) -> Position | None:
        fields: Any = template.parse(row.key)
        if fields is None or fields["state"] not in states:
            return None
        return fields["at"], fields["asset"], fields["state"]

    count = limit
    while limit <= _SHORT_READ_ROWS:
        page = await store.row_page(span, limit=limit, keys_only=True)
        yield [each for row in page.rows if (each := position(row)) is not None]
        if not page.more:
            return
        span = span.after(page.rows[-1].key)
        limit *= 2
    chunk: list[Position] = []
    async with aclosing(store.row_scan(span, keys_only=True)) as rest:
        async for row in rest:
            if (each := position(row)) is not None:
                chunk.append(each)
            if len(chunk) == count:
                yield chunk
                chunk = []
    yield chunk


async def _read_listed(
    store: Store, kind: FacetType, positions: list[Position]
) -> list[FoundEntry]:
    """Read entries in the order of their positions. One that has changed meanwhile is left out: it
    is at a newer position. So is a completed one of an asset in progress, which is newer, from
    `all`."""
    addresses: list[tuple[Any, str]] = [(state, asset) for _, asset, state in positions]
    again = set[str]()
    if kind == "all":
        completed = [asset for _, asset, state in positions if state == COMPLETED]
        addresses += [(IN_PROGRESS, asset) for asset in completed]
    by_position = {each.position: each for each in await _read(store, addresses)}
    if kind == "all":
        again = {asset for _, asset, state in by_position if state == IN_PROGRESS}
    return [
        by_position[each]
        for each in positions
        if each in by_position and not (each[2] == COMPLETED and each[1] in again)
    ]


async def _read(
    store: Store, addresses: Collection[tuple[Any, str]], *, skips_unreadable: bool = True
) -> list[FoundEntry]:
    """Read entries by state and asset, newest first. Rows that do not decode are left out, unless
    the caller wants to know."""
    record = store.binding.record(ENTRY)
    keys = []
    for state, asset in addresses:
        try:
            keys.append(record.template.build({"state": state, "asset": asset}))
        except KeyFieldError:  # no entry has such an id
            continue
    entries: dict[str, FoundEntry] = {}
    async with aclosing(store.rows_in_pages(list(dict.fromkeys(keys)))) as pages:
        async for rows in pages:
            for row in rows:
                if row is None:
                    continue
                try:
                    entries[row.key] = _found(record.decode, row)
                except DataError:
                    if not skips_unreadable:
                        raise
    return sorted(entries.values(), key=lambda each: each.order)


def _found(decode: Callable[[bytes, str], HistoryEntry], row: Row) -> FoundEntry:
    entry = decode(row.value, row.key)
    return FoundEntry((moment_of(entry), entry.attr.asset_id, entry.attr.state), entry, row.value)


def _after(entries: list[FoundEntry], position: Position | None) -> list[FoundEntry]:
    if position is None:
        return entries
    return [each for each in entries if each.order > _order(position)]


def _page(tag: str, entries: list[FoundEntry], limit: int) -> FacetPage:
    """Cut a page off the entries that follow; there is a cursor if some are left."""
    size = 0
    for count, each in enumerate(entries):
        if count == limit or (count and size + len(each.value) > PAGE_BYTES_MAX):
            return FacetPage(entries[:count], _encode_cursor(tag, entries[count - 1].position))
        size += len(each.value)
    return FacetPage(entries)


def _encode_cursor(tag: str, position: Position) -> str:
    return encode_cursor(msgspec.json.encode((tag, *position)))


def _decode_cursor(tag: str, cursor: str | None) -> Position | None:
    if cursor is None:
        return None
    data = decode_cursor(cursor)
    try:
        tag_sent, moment, asset, state = msgspec.json.decode(data, type=tuple[str, int, str, State])
        ENTRY.template.build({"state": state, "asset": asset})
    except (msgspec.MsgspecError, UnicodeDecodeError, KeyFieldError):
        raise invalid_cursor(cursor) from None
    if tag_sent != tag or not 0 <= moment <= MOMENT_MAX:
        raise invalid_cursor(cursor)
    return moment, asset, state
