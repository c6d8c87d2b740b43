"""The metrics of HTTP requests for Prometheus."""

from collections.abc import Iterator

from prometheus_client.core import (
    CollectorRegistry,
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)

from keyhouse.scheduling.timing import Timing

__all__ = ["HttpMetrics"]


class HttpMetrics:
    """Requests by method, route and status, requests in flight, and rejected connections.

    The label is the route's template, never the path, which would make a series for each id.
    """

    def __init__(self, registry: CollectorRegistry) -> None:
        self.in_flight = 0
        self.event_streams = 0
        self._timings: dict[tuple[str, str, int], Timing] = {}
        self._rejected: dict[int, int] = {}
        registry.register(self)

    def count(self, method: str, route: str, status: int, seconds: float) -> None:
        key = (method, route, status)
        try:
            timing = self._timings[key]
        except KeyError:
            timing = self._timings[key] = Timing()
        timing.add(seconds)

    def by_route(self) -> dict[tuple[str, str], list[tuple[int, Timing]]]:
        """Return the timings of each method and route, with their statuses."""
        routes: dict[tuple[str, str], list[tuple[int, Timing]]] = {}
        for (method, route, status), timing in self._timings.items():
            routes.setdefault((method, route), []).append((status, timing))
        return routes

    def reject(self, status: int) -> None:
        """Count a request that the server rejected before it reached a route."""
        self._rejected[status] = self._rejected.get(status, 0) + 1

    def collect(self) -> Iterator[Metric]:
        seconds = HistogramMetricFamily(
            "keyhouse_http_request_seconds",
            "Duration of requests.",
            labels=["method", "route", "status"],
        )
        for (method, route, status), timing in self._timings.copy().items():
            seconds.add_metric([method, route, str(status)], timing.rising(), timing.seconds)
        yield seconds
        rejected = CounterMetricFamily(
            "keyhouse_http_refused",
            "Requests rejected before they reached a route, by status.",
            labels=["status"],
        )
        for status, count in self._rejected.copy().items():
            rejected.add_metric([str(status)], count)
        yield rejected
        yield GaugeMetricFamily(
            "keyhouse_http_in_flight", "Requests in flight.", value=self.in_flight
        )
        yield GaugeMetricFamily(
            "keyhouse_http_event_streams", "Open event streams.", value=self.event_streams
        )
