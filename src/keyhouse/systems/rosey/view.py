"""The operator's view over HTTP: what plugins keep, and how much is asked of the service. It changes nothing.

It shows what belongs to plugins' users, so every route but the page, which holds nothing, asks for a token with the scope
`operator`; and who looks at a value is in the log.
"""

from collections.abc import Sequence
from typing import Any, Final

import msgspec
import structlog

from keyhouse.auth import Caller
from keyhouse.engine import Engine, Row
from keyhouse.errors import CursorError, KeyFieldError, NotFoundError
from keyhouse.http import Response, ResponseSpec, Route
from keyhouse.metrics import SECONDS, Timing
from keyhouse.schema import MILLISECONDS
from keyhouse.service.rates import RateLimiter
from keyhouse.store import Store
from keyhouse.systems.rosey import shown
from keyhouse.systems.rosey.census import Census
from keyhouse.systems.rosey.figures import Figures
from keyhouse.systems.rosey.page import page_routes
from keyhouse.systems.rosey.quota import Quota
from keyhouse.systems.rosey.schema import SCHEMAS, VALUE

__all__ = ["SCOPE", "View"]

SCOPE: Final = "operator"

_READ_ROWS: Final = 50
"""Rows read at once for their sizes: each may hold a large value."""

_PRIVATE: Final = (("Cache-Control", "no-store"),)

_log: Any = structlog.get_logger("keyhouse.rosey")
_is_json = msgspec.json.Decoder(msgspec.Raw).decode


class View:
    def __init__(
        self,
        engine: Engine,
        figures: Figures,
        census: Census,
        quota: Quota,
        rates: RateLimiter | None,
    ) -> None:
        self._engine = engine
        self._figures = figures
        self._census = census
        self._rates = rates
        self._quota = shown.QuotaShown(quota.keys_max or None, quota.bytes_max or None)

    async def plugins(self, query: shown.PluginsQuery) -> shown.Plugins:
        """The plugins that keep anything, by name."""
        names: list[str] = []
        async for name in self._engine.spaces():
            if query.cursor is None or name > query.cursor:
                names.append(name)
            if len(names) > query.limit:
                break
        page = names[: query.limit]
        more = len(names) > len(page)
        return shown.Plugins(
            [self._line(name) for name in page],
            truncated=more,
            counted_at=_time(self._census.taken_at),
            cursor=page[-1] if more else msgspec.UNSET,
        )

    async def plugin(self, plugin: shown.PluginName, query: shown.PluginQuery) -> shown.PluginShown:
        """One plugin: what it keeps and may keep, what it has asked for, and what went wrong."""
        store = self._store(plugin)
        operations, errors = self._figures.timings(plugin), self._figures.failures(plugin)
        if not operations and not errors and not (await store.keys(VALUE, limit=1))[0]:
            raise NotFoundError("No plugin of this name keeps anything.", plugin=plugin)
        room, counted_at = self._census.of(plugin)
        if query.count == "now":
            room, counted_at = await self._census.count(plugin), self._engine.clock.now()
        return shown.PluginShown(
            plugin,
            keys=None if room is None else room.keys,
            bytes=None if room is None else room.bytes,
            counted_at=_time(counted_at),
            quota=self._quota,
            rate=self._rate(plugin),
            operations=_works(operations),
            errors=errors,
        )

    async def keys(
        self, plugin: shown.PluginName, query: shown.KeysQuery
    ) -> Response[shown.KeysShown]:
        """A plugin's keys in the order of their bytes, with sizes, revisions and times, or without."""
        store = self._store(plugin)
        found, cursor = await store.keys(
            VALUE, limit=query.limit, cursor=query.cursor or None, prefix=query.prefix or None
        )
        lines = (
            [shown.KeyLine(key) for key in found]
            if query.fields == "keys"
            else await self._sized(store, found)
        )
        page = shown.KeysShown(lines, truncated=cursor is not None, cursor=cursor or msgspec.UNSET)
        return Response(page, headers=_PRIVATE)

    async def value(
        self, plugin: shown.PluginName, query: shown.ValueQuery, caller: Caller
    ) -> Response[shown.ValueShown]:
        """One key's value, with its revision and when it expires."""
        row = await self._store(plugin).row(VALUE.template.build({"key": query.key}))
        if row is None:
            raise NotFoundError("The plugin has no such key.", plugin=plugin, key=query.key)
        _log.info("operator looked at a value", operator=caller.tenant, plugin=plugin, key=row.key)
        return Response(_value(row), headers=_PRIVATE)

    async def figures(self) -> shown.FiguresShown:
        """What was asked of this process, and what it has done by itself: `/metrics` in brief."""
        return shown.FiguresShown(
            operations=_works(self._figures.timings()),
            errors=self._figures.failures(),
            watches=self._figures.watches,
            cleanups=sum(self._figures.cleanups.steps),
            cleaned=self._figures.cleaned,
            quota=self._quota,
            rate_per_second=None if self._rates is None else self._rates.per_second,
        )

    def routes(self) -> Sequence[Route]:
        one = [NotFoundError]
        return (
            *page_routes(),
            Route(method="GET", path="/plugins", handler=self.plugins, scope=SCOPE),
            Route(
                method="GET",
                path="/plugins/{plugin}",
                handler=self.plugin,
                scope=SCOPE,
                problems=one,
            ),
            Route(
                method="GET",
                path="/plugins/{plugin}/keys",
                handler=self.keys,
                scope=SCOPE,
                problems=[*one, CursorError, KeyFieldError],
            ),
            Route(
                method="GET",
                path="/plugins/{plugin}/value",
                handler=self.value,
                scope=SCOPE,
                problems=[*one, KeyFieldError],
            ),
            Route(
                method="GET",
                path="/figures",
                handler=self.figures,
                scope=SCOPE,
                replies={200: ResponseSpec(type=shown.FiguresShown, example=shown.FIGURES_EXAMPLE)},
            ),
        )

    def _store(self, plugin: str) -> Store:
        try:
            return Store(SCHEMAS[0], self._engine, plugin)
        except KeyFieldError:  # the path's own pattern lets a line break at its end through
            raise NotFoundError("No plugin can be called so.", plugin=plugin) from None

    def _line(self, plugin: str) -> shown.PluginLine:
        room, _ = self._census.of(plugin)
        return shown.PluginLine(
            plugin,
            keys=None if room is None else room.keys,
            bytes=None if room is None else room.bytes,
            operations=sum(_count(timings) for timings in self._figures.timings(plugin).values()),
            errors=sum(self._figures.failures(plugin).values()),
        )

    def _rate(self, plugin: str) -> shown.RateShown | None:
        rates = self._rates
        return (
            None
            if rates is None
            else shown.RateShown(rates.per_second, rates.burst, rates.left(plugin))
        )

    async def _sized(self, store: Store, keys: Sequence[str]) -> list[shown.KeyLine]:
        """What went away since the keys were listed is left out."""
        lines: list[shown.KeyLine] = []
        for start in range(0, len(keys), _READ_ROWS):
            for row in await self._engine.read(store.space, keys[start : start + _READ_ROWS]):
                if row is not None:
                    lines.append(
                        shown.KeyLine(row.key, len(row.value), row.revision, _time(row.expires))
                    )
        return lines


def _value(row: Row) -> shown.ValueShown:
    value = shown.ValueShown(
        row.key, msgspec.Raw(row.value), len(row.value), row.revision, _time(row.expires)
    )
    try:
        row.value.decode()
        _is_json(row.value)
    except (msgspec.DecodeError, UnicodeDecodeError):
        value.value, value.unreadable = (
            msgspec.Raw(b"null"),
            row.value.decode(errors="backslashreplace"),
        )
    return value


def _works(timings: dict[str, list[Timing]]) -> dict[str, shown.Work]:
    return {operation: _work(each) for operation, each in timings.items()}


def _work(timings: list[Timing]) -> shown.Work:
    count = _count(timings)
    below, p95 = 0, None
    for end, *steps in zip(SECONDS, *(timing.steps for timing in timings), strict=False):
        below += sum(steps)
        if below >= 0.95 * count:
            p95 = end * 1_000
            break
    return shown.Work(
        count, round(sum(timing.seconds for timing in timings) * 1_000 / max(count, 1), 3), p95
    )


def _count(timings: list[Timing]) -> int:
    return sum(sum(timing.steps) for timing in timings)


def _time(moment: int | None) -> str | None:
    return None if moment is None else MILLISECONDS.format(moment)
