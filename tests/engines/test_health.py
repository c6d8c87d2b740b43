"""Health checks of servers. Checks of files are tested with `keyhouse doctor`."""

import asyncio
import secrets
from pathlib import Path

import pytest

from keyhouse.engine import Batch, Put
from keyhouse.engines.health import CLOCK_SECONDS_MAX, HealthCheck, check_health, clock_skew
from keyhouse.engines.jetstream.health import (
    MIRRORED_KEYS_MAX,
    bucket_checks,
    microseconds,
    storage_checks,
)
from keyhouse.engines.registry import open_engine
from keyhouse.testing.servers.dynamodb import ACCESS_KEY, REGION, dynamodb_server
from tests.support.nats_servers import nats_server


def checks(url: str) -> dict[str, HealthCheck]:
    async def run_checks() -> list[HealthCheck]:
        engine = await open_engine(url)
        await engine.commit("s", Batch(puts=(Put("k", b"1"),)))
        await engine.close()
        return await check_health(url)

    found = asyncio.run(run_checks())
    assert all(check.fix for check in found if check.state != "ok"), "each finding has a fix"
    return {check.name: check for check in found}


def test_nats_health_checks_cover_version_durability_storage_and_clock() -> None:
    server = nats_server()
    found = checks(
        f"{server.url}/?bucket=health-{secrets.token_hex(4)}&sync=always&monitor={server.monitor}"
    )
    assert found["NATS"].value.startswith("2.") and found["clock"].value.startswith(
        "the server's is "
    )
    assert (
        found["durability"].value
        == "sync_interval always, according to the server's monitoring endpoint"
    )
    assert (
        "in files" in found["bucket"].value
        and found["replicas"].value == "1: one disk holds every row"
    )
    assert {check.state for check in found.values()} == {"ok"}


def test_nats_health_without_a_bucket_covers_the_server_only() -> None:
    found = checks(f"{nats_server().url}/?prefix=health-{secrets.token_hex(4)}-&sync=always")
    assert (
        set(found) == {"NATS", "durability", "storage"}
        and "according to the URL" in found["durability"].value
    )


def test_memory_storage_and_missing_replicas_are_reported() -> None:
    state = {"bytes": 0}
    [memory, *_] = bucket_checks({"config": {"name": "KV_a", "storage": "memory"}, "state": state})
    assert memory.state == "bad" and "keyhouse move" in memory.fix
    replicas = [{"name": "n2", "current": True}, {"name": "n3", "current": False, "offline": True}]
    config = {"name": "KV_a", "storage": "file", "num_replicas": 3}
    [*_, away] = bucket_checks(
        {"config": config, "state": state, "cluster": {"replicas": replicas}}
    )
    assert (away.state, away.value) == ("warn", "3, lagging or offline: n3")
    [full] = storage_checks({"storage": 95, "limits": {"max_storage": 100}})
    assert full.state == "warn"
    assert microseconds("2026-11-15T10:00:00.123456789Z") == "2026-11-15T10:00:00.123456+00:00"
    assert microseconds("2026-11-15T10:00:00Z") == "2026-11-15T10:00:00.000000+00:00"


def test_a_bucket_with_more_keys_than_a_process_should_mirror_is_reported() -> None:
    config = {"name": "KV_a", "storage": "file"}
    for keys, state in ((MIRRORED_KEYS_MAX, "ok"), (MIRRORED_KEYS_MAX + 1, "warn")):
        found = bucket_checks({"config": config, "state": {"bytes": 0, "messages": keys}})
        [check] = [check for check in found if check.name == "keys"]
        assert (check.state, f"{keys:,}" in check.value) == (state, True)
        assert ("PostgreSQL" in check.fix) == (state == "warn")
    guide = Path("docs/guides/jetstream.md").read_text()
    assert f"{MIRRORED_KEYS_MAX:,} keys" in " ".join(guide.split())


def test_dynamodb_health_checks_cover_state_clock_and_protection(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", ACCESS_KEY)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "test")
    endpoint = dynamodb_server().endpoint
    found = checks(f"dynamodb://health-{secrets.token_hex(4)}?region={REGION}&endpoint={endpoint}")
    assert endpoint in found["DynamoDB"].value and "ACTIVE" in found["table"].value
    assert found["time to live"].value.startswith("on") and found["durability"].state == "ok"
    assert found["clock"].state == "ok", "the server runs on this machine"
    assert "update-continuous-backups" in found["point-in-time recovery"].fix


@pytest.mark.parametrize(
    ("ahead", "state", "said"), [(0.4, "ok", "ahead"), (-CLOCK_SECONDS_MAX - 1, "warn", "behind")]
)
def test_clock_skew_is_reported(ahead: float, state: str, said: str) -> None:
    check = clock_skew(ahead)
    assert check.state == state and said in check.value and bool(check.fix) == (state == "warn")
