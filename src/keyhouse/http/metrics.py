"""What the face counts: requests by method, route and status, with their time, how many are being answered, and what was
refused before it was a request of any route.

Counted in plain integers, as the engines' are, and made into metrics when somebody looks.
"""

from collections.abc import Iterator

from prometheus_client import CollectorRegistry
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)

from keyhouse.metrics import Timing


class HttpMetrics:
    """The route in a label is the template, never the path: a path would be a label for each id."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.in_flight = 0
        self._timings: dict[tuple[str, str, int], Timing] = {}
        self._refused: dict[int, int] = {}
        registry.register(self)

    def count(self, method: str, route: str, status: int, seconds: float) -> None:
        key = (method, route, status)
        try:
            timing = self._timings[key]
        except KeyError:
            timing = self._timings[key] = Timing()
        timing.add(seconds)

    def refuse(self, status: int) -> None:
        """The server has refused what no route will see."""
        self._refused[status] = self._refused.get(status, 0) + 1

    def collect(self) -> Iterator[Metric]:
        seconds = HistogramMetricFamily(
            "keyhouse_http_request_seconds",
            "How long a request took to answer.",
            labels=["method", "route", "status"],
        )
        for (method, route, status), timing in self._timings.copy().items():
            seconds.add_metric([method, route, str(status)], timing.rising(), timing.seconds)
        yield seconds
        refused = CounterMetricFamily(
            "keyhouse_http_refused",
            "What was refused before it reached a route, by status.",
            labels=["status"],
        )
        for status, count in self._refused.copy().items():
            refused.add_metric([str(status)], count)
        yield refused
        yield GaugeMetricFamily(
            "keyhouse_http_in_flight", "Requests being answered now.", value=self.in_flight
        )
