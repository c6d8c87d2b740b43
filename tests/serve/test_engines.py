"""The engines of a service: several of them, opened and closed by the process, and on the service's
own NATS server.
"""

import asyncio
import json
import urllib.request
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import nats
import pytest
from structlog.testing import capture_logs

from keyhouse import Store, open_engine
from keyhouse.engine import Engine
from keyhouse.engines.url import public_url
from keyhouse.errors import ClosedError, UnavailableError, UsageError
from keyhouse.layout import JetstreamLayout, Layouts, register_layouts
from keyhouse.nats.embedded_users import BUCKETS_USER, with_embedded_user
from keyhouse.nats.server import NatsServer, ReservedPort
from keyhouse.schema import Record, Schema, Space
from keyhouse.serve.server import Server
from keyhouse.service.spec import ServiceContext, ServiceSpec
from keyhouse.settings.engine_urls import default_url, embedded_server, url_of, with_server
from keyhouse.settings.sources import load_settings
from tests.support.polling import until
from tests.support.program import run as run_program


class Shelf(msgspec.Struct):
    name: str


SHELF = Record(Shelf, "shelf/{name}")
SCHEMA = Schema("shelves", SHELF, space=Space("shelf"))

register_layouts(
    {
        "shelves": Layouts(jetstream=JetstreamLayout(bucket_per_space=True), default_engine="nats:")
    }.get
)


class Built:
    """A service that keeps its context, and opens further engines."""

    def __init__(self, *further: str) -> None:
        self.further = further
        self.engines: list[Engine] = []
        self.context: ServiceContext | None = None

    async def __call__(self, context: ServiceContext) -> ServiceSpec:
        self.context = context
        self.engines = [context.engine]
        for number, url in enumerate(self.further):
            self.engines.append(await context.open(url, name=f"extra{number}"))
        return ServiceSpec(name="shelves")

    def store(self, number: int = 0) -> Store:
        return Store(SCHEMA, self.engines[number], "one")


@asynccontextmanager
async def served(
    folder: Path, built: Any, flags: dict[str, Any] | None = None, **environment: str
) -> AsyncIterator[str | None]:
    given = {"data": str(folder / "data"), "http": "127.0.0.1:0", "nats_port": 0} | (flags or {})
    loaded = load_settings(given, environment, None, systems=("shelves",))
    async with asyncio.timeout(60), Server(loaded, {"shelves": built}) as addresses:
        yield addresses.nats


def test_the_default_engine_of_a_system_can_be_the_embedded_nats_server(tmp_path: Path) -> None:
    """Engines were opened before NATS was started."""

    async def start() -> None:
        built = Built()
        async with served(tmp_path, built) as url:
            await built.store().put(SHELF, Shelf("jam"))
            assert built.engines[0].capabilities.name == "jetstream"
            assert url is not None
            user = with_embedded_user(url, tmp_path / "data", BUCKETS_USER)
            client = await nats.connect(user)  # other programs read the rows as a bucket
            bucket = await client.jetstream().key_value("one")
            assert json.loads((await bucket.get("shelf/jam")).value or b"") == {"name": "jam"}
            await client.close()
        async with served(tmp_path, built):  # its rows are still there
            assert await built.store().get(SHELF, name="jam") == Shelf("jam")

    with capture_logs() as logs:
        asyncio.run(start())
    assert [line["durable"] for line in logs if line["event"] == "engine open"] == [True, True]
    assert not [line for line in logs if "may be lost" in line["event"]]


def test_the_embedded_server_of_an_engine_syncs_every_commit(tmp_path: Path) -> None:
    async def start() -> None:
        built, monitor_port = Built(), ReservedPort()
        async with served(tmp_path, built, {"nats_monitor_port": monitor_port.number}):
            assert built.engines[0].capabilities.durable
            configuration = json.loads((tmp_path / "data/nats/nats-server.json").read_text())
            assert configuration["jetstream"]["sync_interval"] == "always"
            monitor = f"http://{configuration['http']}/varz"
            shown = await asyncio.to_thread(lambda: urllib.request.urlopen(monitor).read())
            assert json.loads(shown)["jetstream"]["config"]["sync_always"] is True

    asyncio.run(start())


def test_an_engine_on_a_given_nats_server_uses_its_address_and_parameters(tmp_path: Path) -> None:
    server = NatsServer(tmp_path / "own")
    server.start()
    server.ready()
    try:

        async def start() -> None:
            built = Built()
            flags = {"nats": server.url, "engine": "nats:?sync=always"}
            async with served(tmp_path, built, flags):
                await built.store().put(SHELF, Shelf("jam"))
                assert built.engines[0].capabilities.durable
            assert not (tmp_path / "data" / "nats").exists()

        asyncio.run(start())
    finally:
        server.stop()


def test_an_engine_on_nats_is_rejected_when_nats_is_off(tmp_path: Path) -> None:
    async def start() -> None:
        async with served(tmp_path, Built(), {"nats": "off"}):
            raise AssertionError

    with pytest.raises(UsageError, match="which is off") as rejected:
        asyncio.run(start())
    assert rejected.value.fields["system"] == "shelves"


def test_a_service_opens_further_engines_which_the_process_closes(tmp_path: Path) -> None:
    async def start() -> None:
        built = Built(f"sqlite:{tmp_path}/more.db", "memory:", "nats:?bucket=more")
        async with served(tmp_path, built, {"engine": "memory:"}):
            for number in range(4):
                await built.store(number).put(SHELF, Shelf(f"jam{number}"))
            names = [engine.capabilities.name for engine in built.engines]
            assert names == ["memory", "sqlite", "memory", "jetstream"]
            assert built.context is not None
            samples = {
                sample.labels["system"]: sample.value
                for metric in built.context.metrics.collect()
                for sample in metric.samples
                if sample.name == "keyhouse_engine_seconds_count"
                and sample.labels["call"] == "commit"
            }
            assert samples == {
                "shelves": 1,
                "shelves.extra0": 1,
                "shelves.extra1": 1,
                "shelves.extra2": 1,
            }
        for number in (1, 3):
            with pytest.raises(ClosedError):
                await built.store(number).get(SHELF, name="jam")
        engine = await open_engine(f"sqlite:{tmp_path}/more.db")
        assert await Store(SCHEMA, engine, "one").get(SHELF, name="jam1") == Shelf("jam1")
        await engine.close()

    asyncio.run(start())


def test_engines_are_closed_when_a_later_one_cannot_be_opened(tmp_path: Path) -> None:
    async def start() -> None:
        built = Built(f"sqlite:{tmp_path}/more.db", "mysql://nowhere")
        with pytest.raises(UsageError, match="Unknown scheme") as rejected:
            async with served(tmp_path, built, {"engine": f"sqlite:{tmp_path}/rows.db"}):
                raise AssertionError
        assert rejected.value.fields["system"] == "shelves"
        with pytest.raises(ClosedError):
            await built.store().get(SHELF, name="jam")

    asyncio.run(start())


def test_blocking_calls_end_before_the_engines_are_closed(tmp_path: Path) -> None:
    async def start() -> None:
        built = Built()
        ended = asyncio.Event()

        def block() -> int:
            ended.set()  # seen by nobody before the loop turns
            return 7

        async with served(tmp_path, built, {"engine": "memory:"}):
            assert built.context is not None
            assert await built.context.run_blocking(block) == 7
        with pytest.raises(UnavailableError, match="shutting down"):
            await built.context.run_blocking(block)

    asyncio.run(start())


def test_a_context_without_a_host_says_what_is_missing(tmp_path: Path) -> None:
    async def start() -> None:
        built = Built()
        async with served(tmp_path, built, {"engine": "memory:"}):
            assert built.context is not None
            alone = msgspec.structs.replace(built.context, host=None)
            with pytest.raises(UsageError, match="has no host"):
                await alone.open("memory:", name="x")

    asyncio.run(start())


# URLs


@pytest.mark.parametrize(
    ("url", "servers", "resolved"),
    [
        ("nats:", "nats://h:1", "nats://h:1/?sync=always"),
        ("nats:?bucket=b", "nats://h:1", "nats://h:1/?sync=always&bucket=b"),
        ("nats:?sync=interval", "nats://h:1/", "nats://h:1/?sync=interval"),
        ("nats:", "tls://u:p@h:1, tls://u:p@i:2", "tls://u:p@h:1,i:2/?sync=always"),
    ],
)
def test_a_url_on_the_services_server_gets_its_address(
    url: str, servers: str, resolved: str
) -> None:
    assert with_server(url, servers, sync="always") == resolved


def test_a_declared_default_engine_replaces_the_file() -> None:
    assert default_url("shelves", Path("d")) == "nats:?prefix="
    assert default_url("other", Path("d")) == "sqlite:d/other.db?layout=other"
    assert url_of("other", "nats:", alone=False) == "nats:?bucket=other"


def test_commands_read_rows_on_the_embedded_server_while_it_runs(tmp_path: Path) -> None:
    async def start() -> None:
        engine = "nats:"
        async with served(tmp_path, Built(), {"engine": engine}) as url:
            assert url == public_url(embedded_server(tmp_path / "data"))
            (tmp_path / "keyhouse.toml").write_text('engine = "nats:"\ndata = "data"\n')
            put = ("put", "rosey", "theme", '"dark"', "--space", "trivia")
            await asyncio.to_thread(run_program, *put, cwd=tmp_path)
            got = await asyncio.to_thread(
                run_program, "get", "rosey", "theme", "--space", "trivia", cwd=tmp_path
            )
            assert "dark" in got.stdout
            # Doctor called the default server not durable: its URL lacked what serve adds.
            checked = await asyncio.to_thread(run_program, "doctor", "rosey", cwd=tmp_path)
            assert "No problems." in checked.stdout and "sync=always" in checked.stdout

    asyncio.run(start())
    checked = run_program("doctor", "rosey", cwd=tmp_path, code=1)
    assert "runs only while `keyhouse serve` does" in " ".join(checked.stdout.split())
    with pytest.raises(UsageError, match="none has run with this data folder"):
        embedded_server(tmp_path)


# The bus


def test_the_bus_starts_nats_and_is_connected_before_tasks_run(tmp_path: Path) -> None:
    got: list[bytes] = []

    def build(context: ServiceContext) -> ServiceSpec:
        bus = context.bus

        async def listen() -> None:
            async with bus.subscribe("events") as messages:
                await bus.publish("events", b"hello")
                got.append((await anext(messages)).data)

        return ServiceSpec(name="shelves", tasks=[listen])

    async def start() -> None:
        async with served(tmp_path, build, {"engine": "memory:"}) as url:
            assert url is not None
            await until(lambda: got)

    asyncio.run(start())
    assert got == [b"hello"]


def test_a_service_that_does_not_ask_for_the_bus_starts_no_nats(tmp_path: Path) -> None:
    async def start() -> None:
        async with served(tmp_path, Built(), {"engine": "memory:"}) as url:
            assert url is None
        assert not (tmp_path / "data" / "nats").exists()

    asyncio.run(start())
