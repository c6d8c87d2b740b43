"""Processes log at start that their secrets differ, with the setting that shares them."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import CollectorRegistry
from structlog.testing import capture_logs

from keyhouse import ManualClock
from keyhouse.engine import Engine
from keyhouse.service.host import ServiceHost
from keyhouse.service.registry import load_service
from keyhouse.service.secret_ids import SecretIds, secret_id
from keyhouse.service.spec import ServiceContext
from tests.support.engine_openers import OPENERS

SETTINGS = {
    "history": "jwt_secret",
    "streamkit": "jwt_secret",
    "audiobooks": "device_key",
}


async def ids_of(system: str, engine: Engine, data: Path, **settings: Any) -> SecretIds:
    """Build a service and return the part that compares its secrets."""
    data.mkdir(exist_ok=True)
    context = ServiceContext(
        engine=engine,
        data=data,
        metrics=CollectorRegistry(),
        settings=settings,
        name=system,
        host=ServiceHost(shares_engines=True),
    )
    built = load_service(system)(context)
    spec = await built if asyncio.iscoroutine(built) else built
    owners = [getattr(task, "__self__", None) for task in spec.tasks]
    return next(owner for owner in owners if isinstance(owner, SecretIds))


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
@pytest.mark.parametrize("system", SETTINGS)
def test_services_with_different_secrets_name_the_setting_that_shares_them(
    system: str, kind: str, tmp_path: Path
) -> None:
    """A token of one process was rejected by the other, and no log had a line about it."""

    async def story() -> None:
        setting = SETTINGS[system]
        engine = await OPENERS[kind](tmp_path)(ManualClock())
        one = await ids_of(system, engine, tmp_path / "one")
        other = await ids_of(system, engine, tmp_path / "other")
        same = await ids_of(system, engine, tmp_path / "one")
        await one.write()
        with capture_logs() as lines:
            await one.compare()
            await same.compare()
            assert lines == []
            await other.compare()
            await other.compare()
        assert [(line["system"], line["setting"]) for line in lines] == [(system, setting)]
        shared = {setting: "a secret of 32 characters and more"}
        first = await ids_of(system, engine, tmp_path / "first", **shared)
        second = await ids_of(system, engine, tmp_path / "second", **shared)
        await first.write()
        with capture_logs() as lines:
            await second.compare()
        assert len(lines) == 1  # of the process whose secret was not changed yet
        await engine.close()

    asyncio.run(story())


def test_an_id_that_is_not_written_again_expires(tmp_path: Path) -> None:
    """After a secret was changed everywhere, nobody has the former one."""

    async def story() -> None:
        clock = ManualClock()
        engine = await OPENERS["sqlite"](tmp_path)(clock)
        former, new = (
            SecretIds(engine, "jars", {"jwt_secret": secret_id(secret)})
            for secret in (b"former", b"new")
        )
        await former.write()
        clock.advance(minutes=15)
        with capture_logs() as lines:
            await new.compare()
        assert lines == []
        await engine.close()

    asyncio.run(story())
