"""`keyhouse serve --workers`: a client sees one service, whichever worker answers, and whatever
happens to the others."""

import asyncio
import json
import re
import secrets
import signal
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

import httpx
import nats
import pytest
from nats.aio.client import Client

from keyhouse.nats.endpoint import partition_of
from keyhouse.serve.data_dir import DataDir, is_alive
from tests.scale.support.workers import SPACE, Workers, recipe, workers
from tests.serve.support.serve_process import refused
from tests.support.engine_openers import NARROWED
from tests.support.polling import until
from tests.support.program import run
from tests.support.terminal import CTRL_C, HANG_UP, on_terminal

ENGINES = [
    pytest.param((name, count), id=f"{name}-{count}", marks=marks)
    for name, count, marks in (
        ("sqlite", 2, ()),
        ("postgres", 2, ()),
        ("sqlite", 4, pytest.mark.extra),
        ("jetstream", 4, pytest.mark.extra),
        ("dynamodb", 4, pytest.mark.extra),
    )
    if not NARROWED or name in NARROWED.split(",")
]
ROUNDS = 20
WRITERS = 8


@pytest.fixture(scope="module", params=ENGINES)
def running(request: pytest.FixtureRequest, tmp_path_factory: Any) -> Iterator[Workers]:
    kind, count = request.param
    with workers(tmp_path_factory.mktemp(kind), kind, count=count) as started:
        yield started


# One service


async def read_everywhere(clients: list[httpx.AsyncClient], path: str, **params: str) -> list[Any]:
    replies = await asyncio.gather(*(client.get(path, params=params) for client in clients))
    return [reply.raise_for_status().json() for reply in replies]


def test_a_write_is_read_by_every_worker_at_once(running: Workers) -> None:
    async def story() -> None:
        async with running.clients() as clients:
            for number in range(ROUNDS):
                writer, id = clients[number % len(clients)], f"read-{number}"
                await writer.put(f"/records/recipe/{id}", json=recipe(id, minutes=number))
                for item in await read_everywhere(clients, f"/records/recipe/{id}"):
                    assert item["value"]["minutes"] == number
                for item in await read_everywhere(clients, "/lookup/recipe", by="slug", slug=id):
                    assert item["fields"]["id"] == id

    asyncio.run(story())


def test_one_of_several_workers_gets_a_unique_value(running: Workers) -> None:
    async def story() -> None:
        async with running.clients() as clients:
            for number in range(ROUNDS):
                replies = await asyncio.gather(
                    *(
                        client.post("/records/recipe", json=recipe(f"{number}-{each}") | same)
                        for each, client in enumerate(clients)
                        for same in [{"slug": f"same-{number}"}]
                    )
                )
                statuses = sorted(reply.status_code for reply in replies)
                assert statuses == [201] + [409] * (len(clients) - 1)

    asyncio.run(story())


def test_a_counter_is_exact_over_workers(running: Workers) -> None:
    async def story() -> None:
        async with running.clients() as clients:

            async def add(client: httpx.AsyncClient) -> list[int]:
                replies = [await client.post("/counters/views/pie", json={"by": 1}) for _ in times]
                return [reply.raise_for_status().json()["value"] for reply in replies]

            times = range(ROUNDS)
            values = await asyncio.gather(*map(add, clients))
            total = ROUNDS * len(clients)
            assert sorted(chain.from_iterable(values)) == [*range(1, total + 1)]
            for count in await read_everywhere(clients, "/counters/views/pie"):
                assert count["value"] == total

    asyncio.run(story())


def test_every_worker_sends_the_events_of_all(running: Workers) -> None:
    async def story() -> None:
        async with running.clients() as writers, running.clients() as readers:
            ids = [f"event-{number}" for number in range(ROUNDS)]
            revision = (await writers[0].get("/records/recipe")).json()["revision"]

            async def read(client: httpx.AsyncClient) -> list[str]:
                query = {"record": "recipe", "since": revision}
                sent: list[str] = []
                async with client.stream("GET", "/watch", params=query) as events:
                    assert events.status_code == 200, await events.aread()
                    async for line in events.aiter_lines():
                        if line.startswith("data:") and "event-" in line:
                            sent.append(json.loads(line[5:])["fields"]["id"])
                        if len(sent) == ROUNDS:
                            break
                return sent

            reading = [asyncio.create_task(read(client)) for client in readers]
            for number, id in enumerate(ids):
                writer = writers[number % len(writers)]
                (await writer.put(f"/records/recipe/{id}", json=recipe(id))).raise_for_status()
            assert await asyncio.gather(*reading) == [ids] * len(readers)

    asyncio.run(story())


def test_requests_of_a_tenant_over_nats_are_of_one_worker_and_in_order(running: Workers) -> None:
    async def story() -> None:
        client = await nats.connect(running.served.nats)
        tenants = ["ann", "bob", "eve", "joe"]

        async def add(tenant: str) -> list[int]:
            body = json.dumps({"counter": "views", "fields": {"id": "soup"}, "by": 1}).encode()
            subject = f"keyhouse.recipes.{tenant}.add"
            sent = [client.request(subject, body, timeout=60) for _ in range(ROUNDS)]
            replies = [json.loads(reply.data) for reply in await asyncio.gather(*sent)]
            return [reply["value"] for reply in replies]

        before = await requests_by_worker(client, running)
        for values in await asyncio.gather(*map(add, tenants)):
            assert values == [*range(1, ROUNDS + 1)]
        after = await requests_by_worker(client, running)
        expected = dict.fromkeys(range(running.count), 0)
        for tenant in tenants:
            expected[partition_of(tenant) % running.count] += ROUNDS
        assert {worker: after[worker] - before[worker] for worker in after} == expected
        await client.close()

    asyncio.run(story())


async def requests_by_worker(client: Client, running: Workers) -> dict[int, int]:
    """Return the requests that each worker has received over NATS."""
    worker_of = {line["id"]: line["worker"] for line in running.lines("nats serving")}
    replies = client.new_inbox()
    inbox = await client.subscribe(replies)
    await client.publish("$SRV.STATS.recipes", b"", reply=replies)
    requests: dict[int, int] = {}
    for _ in range(running.count):
        stats = json.loads((await inbox.next_msg(timeout=30)).data)
        total = sum(endpoint["num_requests"] for endpoint in stats["endpoints"])
        requests[worker_of[stats["id"]]] = total
    await inbox.unsubscribe()
    return requests


def total(page: str, name: str) -> float:
    return sum(map(float, re.findall(rf"^{re.escape(name)}.* (\S+)$", page, re.MULTILINE)))


REQUESTS = 'keyhouse_http_request_seconds_count{method="DELETE"'


def test_metrics_and_readiness_are_of_all_workers_and_survive_one(running: Workers) -> None:
    """A sum that fell when a worker was replaced would look like a burst of requests."""

    async def story() -> None:
        async with running.clients() as clients:
            for client in clients:
                for _ in range(3):
                    assert (await client.delete("/records/recipe/absent")).status_code == 204
            for client in clients:
                page = (await client.get(f"{running.served.http}/metrics")).text
                assert total(page, REQUESTS) == 3 * running.count
                assert total(page, 'keyhouse_system_ready{system="recipes"}') == 1
        await running.kill(1)
        async with running.clients() as clients:
            await clients[1].delete("/records/recipe/absent")
            for client in clients:
                page = (await client.get(f"{running.served.http}/metrics")).text
                assert total(page, REQUESTS) == 3 * running.count + 1
                ready = await client.get(f"{running.served.http}/ready")
                assert ready.json() == {"ready": True, "systems": {"recipes": {"ready": True}}}

    asyncio.run(story())


# Workers that end


Put = Callable[[str], Awaitable[None]]


class Load:
    """Writers of new recipes. `written` are the acknowledged ones."""

    def __init__(self) -> None:
        self.written: list[str] = []
        self.failures: list[Exception] = []
        self.is_stopped = False

    async def write(self, put: Put) -> None:
        while not self.is_stopped:
            id = secrets.token_hex(8)
            try:
                await put(id)
                self.written.append(id)
            except (httpx.TransportError, nats.errors.Error, AssertionError) as error:
                self.failures.append(error)

    async def progress(self) -> None:
        goal = len(self.written) + 10 * WRITERS
        await until(lambda: len(self.written) >= goal)


@asynccontextmanager
async def load(running: Workers, *puts: Put) -> AsyncIterator[Load]:
    """Write over HTTP, and by `puts`, during the block. At its end, every acknowledged write is
    stored."""
    loading = Load()
    async with running.client() as client:
        async with asyncio.TaskGroup() as writers:
            for each in [partial(put, client)] * WRITERS + [*puts]:
                writers.create_task(loading.write(each))
            try:
                await loading.progress()
                yield loading
                await loading.progress()
            finally:
                loading.is_stopped = True
        assert set(loading.written) <= await stored(client)


async def stored(client: httpx.AsyncClient) -> set[str]:
    ids: set[str] = set()
    query: dict[str, Any] = {"limit": 500}
    while True:
        page = (await client.get("/records/recipe", params=query)).raise_for_status().json()
        ids |= {item["fields"]["id"] for item in page["items"]}
        if "cursor" not in page:
            return ids
        query["cursor"] = page["cursor"]


async def put(client: httpx.AsyncClient, id: str) -> None:
    reply = await client.put(f"/records/recipe/{id}", json=recipe(id))
    assert reply.status_code == 201, reply.text


async def put_over_nats(client: Client, id: str) -> None:
    body = {"record": "recipe", "fields": {"id": id}, "value": recipe(id)}
    subject = f"keyhouse.recipes.{SPACE}.put"
    reply = await client.request(subject, json.dumps(body).encode(), timeout=60)
    assert json.loads(reply.data)["success"], reply.data


def test_a_killed_worker_is_replaced_and_nothing_acknowledged_is_lost(running: Workers) -> None:
    async def story() -> None:
        killed = running.processes[0]
        async with running.clients() as clients, load(running) as loading:
            await running.kill(0)
            for id in ("survivor-1", "survivor-2"):
                await put(clients[1], f"{id}-{killed}")  # over the connection that it had
        assert all(isinstance(each, httpx.TransportError) for each in loading.failures)
        [exited] = [
            line
            for line in running.lines("worker exited: replacing it")
            if line["process"] == killed
        ]
        assert (exited["worker"], exited["reason"]) == (0, "signal 9")
        assert not is_alive(killed)

    asyncio.run(story())


@pytest.mark.extra
def test_workers_that_are_killed_again_and_again_lose_nothing(running: Workers) -> None:
    """The second time they are replaced after a backoff."""

    async def story() -> None:
        async with load(running) as loading:
            for number in range(2 * running.count):
                await running.kill(number % running.count)
                await loading.progress()
        assert all(isinstance(each, httpx.TransportError) for each in loading.failures)
        assert len(set(running.processes)) == running.count

    asyncio.run(story())


def test_a_restart_replaces_all_workers_without_a_failed_request(running: Workers) -> None:
    async def story() -> None:
        former = running.processes
        client = await nats.connect(running.served.nats)
        async with load(running, partial(put_over_nats, client)) as loading:
            data = running.served.log_path.parent / "data"
            reply = await asyncio.to_thread(run, "restart", "--data", str(data), "--json")
        assert json.loads(reply.stdout) == {"restarted": running.count}
        assert loading.failures == []
        assert not set(former) & set(running.processes)
        assert not any(map(is_alive, former))
        await client.close()

    asyncio.run(story())


def test_a_restart_whose_worker_does_not_start_leaves_the_former(tmp_path: Path) -> None:
    with workers(tmp_path, "sqlite", "--nats", "off") as running:
        former = running.processes
        rows = tmp_path / "rows.db"
        rows.rename(tmp_path / "moved")  # the former have it open
        rows.mkdir()
        failed = run("restart", "--data", str(tmp_path / "data"), code=1).stderr
        assert "A new worker did not start; the former ones continue" in failed
        assert all(map(is_alive, former))
        assert running.served.get("/health").status_code == 200
        rows.rmdir()
        (tmp_path / "moved").rename(rows)
        run("restart", "--data", str(tmp_path / "data"))
        assert not any(map(is_alive, former))


def test_a_terminal_stops_all_workers_by_ctrl_c_and_when_it_is_closed(tmp_path: Path) -> None:
    """Ctrl-C reaches every process. A closed terminal sends the signal that asks for a restart."""
    flags = ("--workers", "2", "--nats", "off", "--http", "127.0.0.1:0", "--data", "data")
    command = ("serve", "rosey", *flags)
    shown = on_terminal(*command, cwd=tmp_path, typed=[("keyhouse is ready", CTRL_C)])
    assert shown.count("keyhouse is ready") == 1 and "Traceback" not in shown
    shown = on_terminal(*command, cwd=tmp_path, typed=[("keyhouse is ready", HANG_UP)], code=120)
    assert "keyhouse is ready" in shown  # 120: its last output could not be written


def test_a_killed_parent_leaves_no_process_and_no_lock(tmp_path: Path) -> None:
    async def story() -> None:
        with workers(tmp_path, "sqlite") as running:
            data = tmp_path / "data"
            processes = children(running.parent)
            assert set(running.processes) < set(processes) and len(processes) == 3
            running.served.process.kill()
            await until(lambda: not any(map(is_alive, processes)))
            DataDir.take(data).release()

    asyncio.run(story())


def children(process: int) -> list[int]:
    """Return the workers and the nats-server of a parent."""
    return [*map(int, Path(f"/proc/{process}/task/{process}/children").read_text().split())]


def test_a_stop_drains_all_workers(tmp_path: Path) -> None:
    with workers(tmp_path, "sqlite", "--nats", "off") as running:
        processes = running.processes
        assert running.served.end() == 0
        assert {line.get("worker") for line in running.lines("stopped")} == {None, 0, 1}
        assert not any(map(is_alive, processes))
        assert len(running.served.output.read()) == 0  # one ready line


def test_a_tenant_has_its_rate_once_and_not_once_per_worker(tmp_path: Path) -> None:
    async def story() -> None:
        limits: dict[str, Any] = {
            "KEYHOUSE_RECIPES_RATE_PER_SECOND": "0.001",
            "KEYHOUSE_RECIPES_RATE_BURST": str(ROUNDS),
        }
        with workers(tmp_path, "sqlite", "--nats", "off", **limits) as running:
            async with running.clients() as clients:  # one request each
                replies = await asyncio.gather(
                    *(client.get("/records/recipe") for client in clients * ROUNDS)
                )
            statuses = [reply.status_code for reply in replies]
            assert statuses.count(200) == ROUNDS - running.count
            assert set(statuses) == {200, 429}

    asyncio.run(story())


# Rejected


def test_an_engine_of_one_process_is_rejected(tmp_path: Path) -> None:
    for url in (f"rocksdb:{tmp_path}/rows", "memory:"):
        error = refused(tmp_path, "rosey", "--workers", "2", "--engine", url, "--http", "off")
        assert "SQLite, PostgreSQL, NATS or DynamoDB" in json.dumps(error)


def test_a_failing_start_is_reported_once_as_by_one_process(tmp_path: Path) -> None:
    for count in ("1", "2"):
        folder = tmp_path / count
        folder.mkdir()
        url = "postgresql://nobody@127.0.0.1:1/none"
        flags = ("--http", "127.0.0.1:0", "--nats", "off", "--engine", url, "--workers", count)
        error = refused(folder, "history", *flags)
        if count == "1":
            alone = error
    assert error == alone


def test_one_process_cannot_be_restarted(tmp_path: Path) -> None:
    none = run("restart", "--data", str(tmp_path), code=1).stderr
    assert "No keyhouse serves this data folder" in none
    with workers(tmp_path, "sqlite", "--nats", "off", count=1) as running:
        data = str(tmp_path / "data")
        assert "--workers 2" in run("restart", "--data", data, code=1).stderr
        assert is_alive(running.parent)
        assert running.served.end(signal.SIGTERM) == 0
