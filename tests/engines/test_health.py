"""What servers tell of themselves to `keyhouse doctor`. What files tell is tested with the command."""

import asyncio
import secrets

import pytest

from keyhouse.engine import Batch, Put
from keyhouse.engines.health import CLOCK_SECONDS_MAX, HealthCheck, check_health, clock_skew
from keyhouse.engines.jetstream.health import _bucket, _microseconds, _storage
from keyhouse.engines.registry import open_engine
from keyhouse.testing.servers.dynamodb import ACCESS_KEY, REGION, dynamodb_server
from tests.support.nats_servers import nats_server


def facts(url: str) -> dict[str, HealthCheck]:
    async def looked() -> list[HealthCheck]:
        engine = await open_engine(url)
        await engine.commit("s", Batch(puts=(Put("k", b"1"),)))
        await engine.close()
        return await check_health(url)

    found = asyncio.run(looked())
    assert all(fact.fix for fact in found if fact.state != "ok"), "each finding has its cure"
    return {fact.name: fact for fact in found}


def test_nats_tells_its_version_how_it_keeps_rows_and_its_clock() -> None:
    server = nats_server()
    found = facts(
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
    assert {fact.state for fact in found.values()} == {"ok"}


def test_of_a_bucket_for_each_space_nats_tells_what_is_the_server_s() -> None:
    found = facts(f"{nats_server().url}/?prefix=health-{secrets.token_hex(4)}-&sync=always")
    assert (
        set(found) == {"NATS", "durability", "storage"}
        and "according to the URL" in found["durability"].value
    )


def test_rows_in_memory_and_replicas_that_are_away_are_findings() -> None:
    state = {"bytes": 0}
    [memory, _] = _bucket({"config": {"name": "KV_a", "storage": "memory"}, "state": state})
    assert memory.state == "bad" and "keyhouse move" in memory.fix
    replicas = [{"name": "n2", "current": True}, {"name": "n3", "current": False, "offline": True}]
    config = {"name": "KV_a", "storage": "file", "num_replicas": 3}
    [_, away] = _bucket({"config": config, "state": state, "cluster": {"replicas": replicas}})
    assert (away.state, away.value) == ("warn", "3, lagging or offline: n3")
    [full] = _storage({"storage": 95, "limits": {"max_storage": 100}})
    assert full.state == "warn"
    assert _microseconds("2026-11-15T10:00:00.123456789Z") == "2026-11-15T10:00:00.123456+00:00"
    assert _microseconds("2026-11-15T10:00:00Z") == "2026-11-15T10:00:00.000000+00:00"


def test_dynamodb_tells_its_state_its_clock_and_what_protects_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", ACCESS_KEY)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "test")
    endpoint = dynamodb_server().endpoint
    found = facts(f"dynamodb://health-{secrets.token_hex(4)}?region={REGION}&endpoint={endpoint}")
    assert endpoint in found["DynamoDB"].value and "ACTIVE" in found["table"].value
    assert found["time to live"].value.startswith("on") and found["durability"].state == "ok"
    assert found["clock"].state == "ok", "the server runs on this machine"
    assert "update-continuous-backups" in found["point-in-time recovery"].fix


@pytest.mark.parametrize(
    ("ahead", "state", "said"), [(0.4, "ok", "ahead"), (-CLOCK_SECONDS_MAX - 1, "warn", "behind")]
)
def test_a_clock_that_is_off_is_a_finding(ahead: float, state: str, said: str) -> None:
    fact = clock_skew(ahead)
    assert fact.state == state and said in fact.value and bool(fact.fix) == (state == "warn")
