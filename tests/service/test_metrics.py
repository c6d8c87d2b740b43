"""Operation metrics: names, labels, and tenants past the label limit."""

from prometheus_client import CollectorRegistry, generate_latest

from keyhouse.service.limits import TENANT_LABELS_MAX
from keyhouse.service.metrics import OTHERS, OperationMetrics
from keyhouse.service.usage import Size


def scraped(metrics: OperationMetrics) -> str:
    registry = CollectorRegistry()
    registry.register(metrics)
    return generate_latest(registry).decode()


def test_tenants_past_the_limit_share_a_label() -> None:
    metrics = OperationMetrics("kv", ("get",), tenant_label="plugin")
    for number in range(TENANT_LABELS_MAX + 5):
        metrics.timing("get", f"p{number}").add(0.001)
    assert metrics.label("p1") == "p1" and metrics.label("p1004") == OTHERS
    assert sum(metrics.timing("get", "p1004").steps) == 5


def test_the_sizes_of_tenants_past_the_limit_are_summed() -> None:
    """Each replaced the one before, so that `(others)` stood for one tenant only."""
    metrics = OperationMetrics("kv", (), tenant_label="plugin")
    metrics.stored({f"p{number:05d}": Size(2, 10) for number in range(TENANT_LABELS_MAX + 3)})
    assert 'kv_keys_total{plugin="(others)"} 6.0' in scraped(metrics)
    assert 'kv_storage_bytes{plugin="(others)"} 30.0' in scraped(metrics)


def test_without_a_tenant_label_metrics_are_summed() -> None:
    metrics = OperationMetrics("streamkit", ("get",))
    for tenant in ("1", "2"):
        metrics.timing("get", tenant).add(0.001)
        metrics.failed(tenant, "CONFLICT")
    metrics.stored({"1": Size(1, 5), "2": Size(2, 7)})
    page = scraped(metrics)
    assert "streamkit_get_total 2.0" in page
    assert 'streamkit_errors_total{error_code="CONFLICT"} 2.0' in page
    assert "streamkit_keys_total 3.0" in page and "streamkit_storage_bytes 12.0" in page
    assert "watches" not in page
