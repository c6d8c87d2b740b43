"""The document's key migration: copied, verified, deleted; killed, repeated, and under concurrent
writes."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from keyhouse.clock import ManualClock
from keyhouse.engine import Batch, Engine, Put
from keyhouse.engines.memory import MemoryEngine
from keyhouse.errors import LeaseError
from keyhouse.schema import Record
from keyhouse.service.usage import Quota
from keyhouse.store import Store, verify
from keyhouse.testing.faults import FaultyEngine, Killed, fail, meanwhile
from keyhouse_streamkit import configs
from keyhouse_streamkit.migration import customer_ids, migrate_keys
from keyhouse_streamkit.schema import NOTE, RECORDS, SCHEMAS, Note
from keyhouse_streamkit.tenants import Customer
from systems.streamkit.tests.support.service import Asked, app_of
from systems.streamkit.tests.test_streamkit_schema import VALUES
from tests.support.polling import loop_turns
from tests.support.store_driver import Drive, rows

[SCHEMA] = SCHEMAS
CUSTOMER = "12345"
V1, V2 = f"cust_{CUSTOMER}_streamkit_", f"cust_{CUSTOMER}_streamkit_v2_"


def at_v1(record: Record[Any]) -> Record[Any]:
    assert record.legacy is not None
    return record.legacy


async def filled(engine: Engine, clock: ManualClock, folder: Path, count: int = 3) -> Asked:
    """A customer with some of everything at v1 keys."""
    ask = Asked(app_of(engine, folder, keys="v1"), clock)
    for record, value in VALUES[:-1]:
        for number in range(count):
            body = value | {"id": f"streamkit_v2_{number}"}
            assert (
                await ask("POST", f"/configs/{record.name}", body, customer=CUSTOMER)
            ).status == 201
            clock.advance(milliseconds=7)
    for scene in ("Gaming Scene", "notes_a", "_streamkit_"):
        await ask("POST", "/scene-activity/record", {"sceneName": scene}, customer=CUSTOMER)
        clock.advance(milliseconds=7)
    return ask


def test_the_migration_moves_every_row_and_keeps_values_times_and_expiry(
    drive: Drive, tmp_path: Path
) -> None:
    async def work(engine: Engine, clock: ManualClock) -> None:
        ask = await filled(engine, clock, tmp_path)
        store = Store(SCHEMA, engine, CUSTOMER)
        before = await rows(store)
        exported = (await ask("GET", "/export", customer=CUSTOMER)).json
        clock.advance(seconds=3_600)
        seen: list[tuple[str, str, int]] = []
        moved = await migrate_keys(
            engine, CUSTOMER, on_progress=lambda *progress: seen.append(progress)
        )
        assert (moved.copied, moved.verified, moved.deleted, moved.conflicts) == (15, 15, 15, ())
        assert await rows(store) == {key.replace(V1, V2, 1): value for key, value in before.items()}
        assert [finding async for finding in verify(store)] == []
        now = (await ask("GET", "/export", customer=CUSTOMER)).json
        assert [{**entry, "key": entry["key"].replace(V2, V1, 1)} for entry in now] == exported, (
            "expiry and all"
        )
        assert ("12345", "copy notes", 3) in seen and ("12345", "delete scene_activity", 3) in seen
        again = await migrate_keys(engine, CUSTOMER)
        assert (again.copied, again.verified, again.deleted) == (0, 0, 0), (
            "running it twice changes nothing"
        )
        assert await rows(store) == {key.replace(V1, V2, 1): value for key, value in before.items()}

    drive(work)


def test_a_dry_run_counts_and_changes_nothing(drive: Drive, tmp_path: Path) -> None:
    async def work(engine: Engine, clock: ManualClock) -> None:
        await filled(engine, clock, tmp_path)
        before = await rows(Store(SCHEMA, engine, CUSTOMER))
        assert (await migrate_keys(engine, CUSTOMER, dry_run=True)).copied == 15
        assert await rows(Store(SCHEMA, engine, CUSTOMER)) == before

    drive(work)


@pytest.mark.parametrize("keys", ["v1", "v2"])
def test_reads_fall_back_from_v2_to_v1_and_writes_leave_one_row(
    drive: Drive, tmp_path: Path, keys: str
) -> None:
    """With either setting, during the migration: some at v1, some at both, some at v2."""

    async def work(engine: Engine, clock: ManualClock) -> None:
        await filled(engine, clock, tmp_path)
        store = Store(SCHEMA, engine, CUSTOMER)
        made = {entry.record.id: entry.record async for entry in store.scan(NOTE)}
        async with store.transaction() as tx:
            await tx.restore(NOTE.current, made["streamkit_v2_1"])
            await tx.restore(NOTE.current, made["streamkit_v2_2"])
            await tx.delete(at_v1(NOTE), id="streamkit_v2_2")
        ask = Asked(app_of(engine, tmp_path, keys=keys), clock)
        listed = (await ask("GET", "/configs/notes", customer=CUSTOMER)).json
        assert [config["id"] for config in listed["configs"]] == [
            f"streamkit_v2_{number}" for number in range(3)
        ]
        clock.advance(seconds=1)
        for number in range(3):
            path = f"/configs/notes/streamkit_v2_{number}"
            found = (await ask("GET", path, customer=CUSTOMER)).json
            put = await ask("PUT", path, found | {"title": "changed"}, customer=CUSTOMER)
            assert (
                put.json["config"]["createdAt"]
                == found["createdAt"]
                < put.json["config"]["updatedAt"]
            )
            assert (await ask("GET", path, customer=CUSTOMER)).json["title"] == "changed"
            again = await ask("POST", "/configs/notes", found, customer=CUSTOMER)
            assert again.status == 409
        at = [key for key in await rows(store) if "notes_streamkit" in key]
        second = [0, 1, 2] if keys == "v2" else [1, 2]
        first = [number for number in range(3) if number not in second]
        assert sorted(at) == sorted(
            [f"{V1}notes_streamkit_v2_{number}" for number in first]
            + [f"{V2}notes_streamkit_v2_{number}" for number in second]
        )
        answer = await ask(
            "POST", "/scene-activity/record", {"sceneName": "Gaming Scene"}, customer=CUSTOMER
        )
        assert answer.json["count"] == 2
        for number in range(3):
            path = f"/configs/notes/streamkit_v2_{number}"
            assert (await ask("DELETE", path, customer=CUSTOMER)).json["deleted"]
            assert (await ask("GET", path, customer=CUSTOMER)).status == 404

    drive(work)


def test_a_killed_migration_resumes_without_loss(drive: Drive, tmp_path: Path) -> None:
    async def work(engine: Engine, clock: ManualClock) -> None:
        ask = await filled(engine, clock, tmp_path, count=8)
        store = Store(SCHEMA, engine, CUSTOMER)
        before = await rows(store)
        kills = 0
        while True:
            dying = FaultyEngine(engine, fail(3, Killed, after=kills % 2 == 0))
            try:
                await migrate_keys(dying, CUSTOMER)
                break
            except Killed:
                kills += 1
            listed = (await ask("GET", "/configs/notes?fields=ids", customer=CUSTOMER)).json
            assert listed["count"] == 8, "a reader sees everything, however far it came"
            clock.advance(seconds=61)  # the lease of the killed one
        assert kills > 5
        assert await rows(store) == {key.replace(V1, V2, 1): value for key, value in before.items()}

    drive(work)


def test_a_customer_is_migrated_by_one_runner_at_a_time(drive: Drive, tmp_path: Path) -> None:
    async def work(engine: Engine, clock: ManualClock) -> None:
        await filled(engine, clock, tmp_path)
        with pytest.raises(Killed):
            await migrate_keys(FaultyEngine(engine, fail(2, Killed)), CUSTOMER)
        with pytest.raises(LeaseError):
            await migrate_keys(engine, CUSTOMER)

    drive(work)


def test_different_rows_at_both_keys_are_reported_as_conflicts(
    drive: Drive, tmp_path: Path
) -> None:
    async def work(engine: Engine, clock: ManualClock) -> None:
        store = Store(SCHEMA, engine, CUSTOMER)
        await store.put(NOTE, Note(id="a", title="one", content=""))
        await store.put(NOTE.current, Note(id="a", title="another", content=""))
        moved = await migrate_keys(engine, CUSTOMER)
        assert (moved.deleted, moved.conflicts) == (0, (f"{V1}notes_a",))
        assert len(await rows(store)) == 2
        await store.delete(NOTE, id="a")
        assert (await migrate_keys(engine, CUSTOMER)).conflicts == ()

    drive(work)


def test_no_write_is_lost_during_the_migration(drive: Drive, tmp_path: Path) -> None:
    """Two processes, one set to v1 and one to v2, write while the keys move: every change that was
    acknowledged is there."""

    async def work(engine: Engine, clock: ManualClock) -> None:
        await filled(engine, clock, tmp_path, count=12)
        asks = [Asked(app_of(engine, tmp_path, keys=keys), clock) for keys in ("v1", "v2")]
        wanted: dict[str, str] = {}
        done = asyncio.Event()

        async def write(worker: int) -> int:
            turns = 0
            while not done.is_set():
                id = f"streamkit_v2_{(worker + 4 * turns) % 12}"
                ask = asks[turns % 2]
                body: dict[str, Any] = {"title": f"{worker} {turns}", "content": ""}
                answer = await ask("PUT", f"/configs/notes/{id}", body, customer=CUSTOMER)
                assert answer.status == 200, answer.body
                wanted[id] = body["title"]
                await ask(
                    "POST",
                    "/scene-activity/record",
                    {"sceneName": "Gaming Scene"},
                    customer=CUSTOMER,
                )
                turns += 1
                await loop_turns(100)  # a storm would leave no turn to a transaction of 100 rows
            return turns

        async def move() -> None:
            await loop_turns(50)
            await migrate_keys(engine, CUSTOMER)
            done.set()

        turns, _ = await asyncio.gather(
            asyncio.gather(*(write(worker) for worker in range(4))), move()
        )
        await migrate_keys(engine, CUSTOMER)  # records that a v1 process created meanwhile
        found = (await asks[0]("GET", "/configs/notes", customer=CUSTOMER)).json["configs"]
        assert {
            config["id"]: config["title"] for config in found if config["id"] in wanted
        } == wanted
        top = (await asks[1]("GET", "/scene-activity/top", customer=CUSTOMER)).json["scenes"]
        assert top[0]["count"] == 1 + sum(turns)
        assert all(key.startswith(V2) for key in await rows(Store(SCHEMA, engine, CUSTOMER)))

    drive(work)


def test_only_spaces_of_customers_are_migrated(drive: Drive) -> None:
    async def work(engine: Engine, clock: ManualClock) -> None:
        for space in ("12345", "67890", "12_streamkit_notes", "12_streamkit", "a b"):
            await engine.commit(space, Batch(puts=(Put("x", b"1"),)))
        assert [space async for space in customer_ids(engine)] == ["12345", "67890"]

    drive(work)


def test_every_category_is_declared_at_both_keys() -> None:
    for category, record in RECORDS.items():
        assert at_v1(record).template.text == record.template.text.replace(
            f"_v2_{category}", f"_{category}"
        )


@pytest.mark.parametrize("asked", ["replace", "delete"])
def test_a_config_that_moves_during_a_read_is_found(asked: str) -> None:
    """v2 was read before v1: a config that another writer moved in between was found at neither
    key, so a PUT was 404, and a DELETE reported nothing although the config stayed."""

    async def scenario() -> None:
        note, inner = {"title": "", "content": ""}, MemoryEngine(ManualClock())
        other = Customer("12345", inner, Quota(10, 10_000), "v2")
        first = Customer("12345", inner, Quota(10, 10_000), "v1")
        await configs.create(first, "notes", note | {"id": "a"})

        async def move() -> None:
            await configs.replace(other, "notes", "a", note, lambda revision: None)

        engine = FaultyEngine(
            inner, meanwhile(2, move, call="read", after=True)
        )  # the first is of the space's version
        customer = Customer("12345", engine, Quota(10, 10_000), "v1")
        if asked == "replace":
            stored = await configs.replace(customer, "notes", "a", note, lambda revision: None)
            assert stored.id == "a"
        else:
            assert await configs.delete(customer, "notes", "a", lambda revision: None)

    asyncio.run(scenario())
