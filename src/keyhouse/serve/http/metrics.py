"""What the face counts: requests by route and status, their time, and how many are being answered."""

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

_BUCKETS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)


class HttpMetrics:
    """The route in a label is the template, never the path: a path would be a label for each id."""

    def __init__(self, registry: CollectorRegistry) -> None:
        labels = ("method", "route")
        self._requests = Counter("keyhouse_http_requests", "Requests answered.", (*labels, "status"), registry=registry)
        self._seconds = Histogram(
            "keyhouse_http_request_seconds", "Time to answer a request.", labels, buckets=_BUCKETS, registry=registry
        )
        self.in_flight = Gauge("keyhouse_http_in_flight", "Requests being answered now.", registry=registry)
        self._children: dict[tuple[str, str, int], tuple[Counter, Histogram]] = {}

    def count(self, method: str, route: str, status: int, seconds: float) -> None:
        key = (method, route, status)
        child = self._children.get(key)
        if child is None:
            child = (self._requests.labels(method, route, str(status)), self._seconds.labels(method, route))
            self._children[key] = child
        child[0].inc()
        child[1].observe(seconds)
