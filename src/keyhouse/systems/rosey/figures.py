"""The figures of plugin storage for Prometheus, by the names of its document.

On the way of a request they are plain numbers; they become metrics when somebody looks. Plugins beyond a number are counted
together, as `(others)`: whoever may send to any subject must not fill the memory with names.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import Final

from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)

from keyhouse.metrics import Timing
from keyhouse.systems.rosey.quota import Room

__all__ = ["OTHERS", "PLUGINS_MAX", "Figures"]

PLUGINS_MAX: Final = 1_000
OTHERS: Final = "(others)"


class Figures:
    """Is a collector: register it. It may be asked in another thread than it counts in, so it goes through copies,
    which are made in one step; a list is not: it may begin a collection of garbage, and with it another thread."""

    def __init__(self, operations: tuple[str, ...]) -> None:
        self._timings: dict[str, dict[str, Timing]] = {operation: {} for operation in operations}
        self._plugins: set[str] = set()
        self.errors: defaultdict[tuple[str, str], int] = defaultdict(int)
        self.stored: dict[str, tuple[int, int]] = {}
        """Keys and bytes of each plugin, when they were last counted."""
        self.cleanups = Timing()
        self.cleaned = 0
        self.watches = 0

    def label(self, plugin: str) -> str:
        if plugin in self._plugins:
            return plugin
        if len(self._plugins) >= PLUGINS_MAX:
            return OTHERS
        self._plugins.add(plugin)
        return plugin

    def timing(self, operation: str, plugin: str) -> Timing:
        """Where the operations of one plugin are counted; keep it."""
        return self._timings[operation].setdefault(self.label(plugin), Timing())

    def failed(self, plugin: str, code: str) -> None:
        self.errors[self.label(plugin) if plugin else "", code] += 1

    def count(self, counted: Mapping[str, Room]) -> None:
        """What a census has found; plugins beyond the number are added up."""
        stored: dict[str, tuple[int, int]] = {}
        for plugin, room in counted.items():
            label = self.label(plugin)
            keys, size = stored.get(label, (0, 0))
            stored[label] = keys + room.keys, size + room.bytes
        self.stored = stored

    def timings(self, plugin: str | None = None) -> dict[str, list[Timing]]:
        """How often and how long, by operation: of one plugin, or of all. What was never done is left out."""
        if plugin is None:
            return {
                operation: [*by_plugin.values()]
                for operation, by_plugin in self._timings.items()
                if by_plugin
            }
        return {
            operation: [found[plugin]]
            for operation, found in self._timings.items()
            if plugin in found
        }

    def failures(self, plugin: str | None = None) -> dict[str, int]:
        """What was refused or failed, by its code: of one plugin, or of all."""
        found: defaultdict[str, int] = defaultdict(int)
        for (name, code), count in self.errors.items():
            if plugin is None or name == plugin:
                found[code] += count
        return dict(found)

    def collect(self) -> Iterator[Metric]:
        for operation, by_plugin in self._timings.items():
            total = CounterMetricFamily(
                f"rosey_kv_{operation}", f"Operations `{operation}`.", labels=["plugin"]
            )
            seconds = HistogramMetricFamily(
                f"rosey_kv_{operation}_duration_seconds",
                f"How long `{operation}` took.",
                labels=["plugin"],
            )
            for plugin, timing in by_plugin.copy().items():
                total.add_metric([plugin], sum(timing.steps))
                seconds.add_metric([plugin], timing.rising(), timing.seconds)
            yield total
            yield seconds
        yield from self._failures()
        yield from self._storage()

    def _failures(self) -> Iterator[Metric]:
        errors = CounterMetricFamily(
            "rosey_kv_errors", "Refused or failed.", labels=["plugin", "error_code"]
        )
        for (plugin, code), count in self.errors.copy().items():
            errors.add_metric([plugin, code], count)
        yield errors

    def _storage(self) -> Iterator[Metric]:
        keys = GaugeMetricFamily(
            "rosey_kv_keys_total", "Keys of a plugin, when last counted.", labels=["plugin"]
        )
        size = GaugeMetricFamily(
            "rosey_kv_storage_bytes",
            "Bytes of a plugin's keys and values, when last counted.",
            labels=["plugin"],
        )
        for plugin, (count, total) in self.stored.items():
            keys.add_metric([plugin], count)
            size.add_metric([plugin], total)
        yield keys
        yield size
        cleanup = HistogramMetricFamily(
            "rosey_kv_cleanup_duration_seconds", "How long a cleanup took."
        )
        cleanup.add_metric([], self.cleanups.rising(), self.cleanups.seconds)
        yield cleanup
        yield CounterMetricFamily(
            "rosey_kv_cleanup_deleted", "Keys that cleanups removed.", value=self.cleaned
        )
        yield GaugeMetricFamily("rosey_kv_watches", "Watches that are running.", value=self.watches)
