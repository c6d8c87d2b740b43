"""The operator's view over HTTP: what plugins store, and how the service is used. It is read-only.

It shows data of plugins' users, so every route requires a token with the scope `operator`, and
every look at a value is logged. The page for people is the Studio: `/rosey/` leads there.
"""

from collections.abc import Sequence
from typing import Final

import msgspec

from keyhouse.auth import Caller
from keyhouse.engine import Row
from keyhouse.errors import CursorError, KeyFieldError, NotFoundError
from keyhouse.http import Redirect, Response, ResponseSpec, Route
from keyhouse.schema import MILLISECONDS
from keyhouse.service import statistics
from keyhouse.service.runtime import ServiceRuntime
from keyhouse.store import Store
from keyhouse.systems.rosey import view_models as models
from keyhouse.systems.rosey.operations import Plugin
from keyhouse.systems.rosey.schema import SCHEMAS, VALUE

SCOPE: Final = "operator"

STUDIO_PAGE: Final = "/studio/rosey/"

_READ_ROWS: Final = 50
"""Rows read at once for their sizes: each may hold a large value."""

_PRIVATE: Final = (("Cache-Control", "no-store"),)

_check_json = msgspec.json.Decoder(msgspec.Raw).decode


class View:
    def __init__(self, runtime: ServiceRuntime[Plugin]) -> None:
        self._runtime = runtime
        self._engine = runtime.engine
        self._metrics = runtime.metrics
        self._usage_scan = runtime.usage_scan
        self._log = runtime.log.logger

    async def page(self, root: str) -> Redirect:
        """Lead to the page of the plugins in the Studio."""
        return Redirect(f"{root}{STUDIO_PAGE}")

    async def plugins(self, query: models.PluginsQuery) -> models.PluginList:
        """List the plugins that store anything, by name."""
        names: list[str] = []
        async for name in self._engine.spaces():
            if query.cursor is None or name > query.cursor:
                names.append(name)
            if len(names) > query.limit:
                break
        page = names[: query.limit]
        more = len(names) > len(page)
        return models.PluginList(
            [self._summary(name) for name in page],
            truncated=more,
            counted_at=_time(self._usage_scan.counted_at),
            cursor=page[-1] if more else msgspec.UNSET,
        )

    async def plugin(
        self, plugin: models.PluginName, query: models.PluginQuery
    ) -> models.PluginDetails:
        """One plugin: its usage, quota and rate, its operations and errors."""
        store = self._store(plugin)
        operations, errors = self._metrics.timings(plugin), self._metrics.errors(plugin)
        if not operations and not errors and not (await store.keys(VALUE, limit=1))[0]:
            raise NotFoundError("No plugin of this name stores anything.", plugin=plugin)
        size, counted_at = self._usage_scan.known(plugin)
        if query.count == "now":
            size, counted_at = await self._usage_scan.count(plugin), self._engine.clock.now()
        return models.PluginDetails(
            plugin,
            keys=None if size is None else size.keys,
            bytes=None if size is None else size.bytes,
            counted_at=_time(counted_at),
            quota=statistics.quota_view(self._runtime),
            rate=statistics.rate_view(self._runtime, plugin),
            operations=statistics.operation_stats(operations),
            errors=errors,
        )

    async def keys(
        self, plugin: models.PluginName, query: models.KeysQuery
    ) -> Response[models.KeyList]:
        """List a plugin's keys in byte order, with sizes, revisions and expiries unless only keys
        are requested."""
        store = self._store(plugin)
        keys, cursor = await store.keys(
            VALUE, limit=query.limit, cursor=query.cursor or None, prefix=query.prefix or None
        )
        lines = (
            [models.KeySummary(key) for key in keys]
            if query.fields == "keys"
            else await self._key_summaries(store, keys)
        )
        page = models.KeyList(lines, truncated=cursor is not None, cursor=cursor or msgspec.UNSET)
        return Response(page, headers=_PRIVATE)

    async def value(
        self, plugin: models.PluginName, query: models.ValueQuery, caller: Caller
    ) -> Response[models.ValueView]:
        """One key's value, with its revision and expiry."""
        row = await self._store(plugin).row(VALUE.template.build({"key": query.key}))
        if row is None:
            raise NotFoundError("The plugin has no such key.", plugin=plugin, key=query.key)
        self._log.info("operator read a value", operator=caller.tenant, plugin=plugin, key=row.key)
        return Response(_value_view(row), headers=_PRIVATE)

    async def figures(self) -> statistics.ServiceStats:
        """Operations, errors and background work of this process: `/metrics` in brief."""
        return statistics.service_stats(self._runtime)

    def routes(self) -> Sequence[Route]:
        stats = ResponseSpec(type=statistics.ServiceStats, example=statistics.STATS_EXAMPLE)
        missing = [NotFoundError]
        invalid = [*missing, KeyFieldError]
        return (
            Route(method="GET", path="/", handler=self.page, listed=False),
            Route(method="GET", path="/plugins", handler=self.plugins, scope=SCOPE),
            Route(
                method="GET",
                path="/plugins/{plugin}",
                handler=self.plugin,
                scope=SCOPE,
                problems=missing,
            ),
            Route(
                method="GET",
                path="/plugins/{plugin}/keys",
                handler=self.keys,
                scope=SCOPE,
                problems=[*missing, CursorError, KeyFieldError],
            ),
            Route(
                method="GET",
                path="/plugins/{plugin}/value",
                handler=self.value,
                scope=SCOPE,
                problems=invalid,
            ),
            Route(
                method="GET",
                path="/figures",
                handler=self.figures,
                scope=SCOPE,
                replies={200: stats},
            ),
        )

    def _store(self, plugin: str) -> Store:
        try:
            return Store(SCHEMAS[0], self._engine, plugin)
        except KeyFieldError:  # the path's own pattern accepts a trailing line break
            raise NotFoundError("Invalid plugin name.", plugin=plugin) from None

    def _summary(self, plugin: str) -> models.PluginSummary:
        size, _ = self._usage_scan.known(plugin)
        return models.PluginSummary(
            plugin,
            keys=None if size is None else size.keys,
            bytes=None if size is None else size.bytes,
            operations=sum(map(statistics.operation_count, self._metrics.timings(plugin).values())),
            errors=sum(self._metrics.errors(plugin).values()),
        )

    async def _key_summaries(self, store: Store, keys: Sequence[str]) -> list[models.KeySummary]:
        """Keys deleted since they were listed are left out."""
        lines: list[models.KeySummary] = []
        for start in range(0, len(keys), _READ_ROWS):
            for row in await store.rows(keys[start : start + _READ_ROWS]):
                if row is not None:
                    size, expires = len(row.value), _time(row.expires)
                    lines.append(models.KeySummary(row.key, size, row.revision, expires))
        return lines


def _value_view(row: Row) -> models.ValueView:
    value = models.ValueView(
        row.key, msgspec.Raw(row.value), len(row.value), row.revision, _time(row.expires)
    )
    try:
        row.value.decode()
        _check_json(row.value)
    except (msgspec.DecodeError, UnicodeDecodeError):
        value.value = msgspec.Raw(b"null")
        value.unreadable = row.value.decode(errors="backslashreplace")
    return value


def _time(moment: int | None) -> str | None:
    return None if moment is None else MILLISECONDS.format(moment)
