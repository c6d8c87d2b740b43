"""The embedded nats-server: who can connect, and what it offers."""

import asyncio
import json
import stat
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import nats
import pytest

from keyhouse import Record, Schema, Space
from keyhouse.cli.access import with_user
from keyhouse.errors import UnavailableError, UsageError
from keyhouse.nats.connection import connect
from keyhouse.nats.embedded_users import (
    BUCKETS_USER,
    add_user,
    embedded_url,
    remove_user,
    with_embedded_user,
)
from keyhouse.nats.server import NatsServer
from keyhouse.remote_store import RemoteStore
from keyhouse.serve.data_dir import DataDir
from keyhouse.serve.nats_access import embedded_nats, enable_jetstream
from keyhouse.service.nats_client import connect_to_service
from keyhouse_rosey.client import PluginStorage, tenant_of
from tests.support.nats_servers import nats_server


class Recipe(msgspec.Struct):
    name: str


RECIPE = Record(Recipe, "recipe:{name}")
BOX = Schema("box", RECIPE, space=Space("a cook"))


KINDS = ("db.kv.*.*", "db.kv.*.*.*")


async def greeting(port: int) -> dict[str, Any]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    line = await reader.readline()
    writer.close()
    await writer.wait_closed()
    info: dict[str, Any] = json.loads(line.removeprefix(b"INFO "))
    return info


def test_a_password_is_required_and_found_by_the_same_user(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story() -> None:
        data = DataDir.take(tmp_path)
        try:
            async with embedded_nats(data, 0, require_password=True, subjects=KINDS) as server:
                file = tmp_path / "nats" / "nats-server.json"
                assert stat.S_IMODE(file.stat().st_mode) == 0o600
                plain = f"nats://127.0.0.1:{server.port}"
                with pytest.raises(UnavailableError, match="rejects the connection"):
                    async with connect(plain):
                        raise AssertionError("connected without the password")
                assert embedded_url(tmp_path, BUCKETS_USER) == server.url
                assert embedded_url(tmp_path) == with_embedded_user(plain, tmp_path) != server.url
                assert with_embedded_user("nats://127.0.0.1:1", tmp_path) == "nats://127.0.0.1:1"
                assert with_embedded_user("nats://other:4222", tmp_path) == "nats://other:4222"
                monkeypatch.setenv("KEYHOUSE_DATA", str(tmp_path))
                for url in (None, plain):
                    async with PluginStorage.connect("trivia", url) as kv:
                        with pytest.raises(UnavailableError, match="No plugin storage"):
                            await kv.get("theme")
        finally:
            data.release()

    asyncio.run(story())


def test_the_error_without_the_password_names_its_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The command line advised to start a server, and a remote store waited for ten seconds and
    reported a timeout."""

    async def story() -> None:
        data = DataDir.take(tmp_path)
        try:
            async with embedded_nats(data, 0, require_password=True) as server:
                plain = f"nats://127.0.0.1:{server.port}"
                with pytest.raises(UnavailableError, match="set KEYHOUSE_DATA to the data folder"):
                    await connect_to_service(plain, tenant_of("trivia"))
                async with asyncio.timeout(30), RemoteStore(BOX, plain, space="ann") as store:
                    with pytest.raises(UnavailableError, match="Authorization Violation"):
                        await store.get(RECIPE, name="soup")
                (tmp_path / "keyhouse.toml").write_text(f'data = "{tmp_path}"')
                monkeypatch.chdir(tmp_path)
                assert with_user(plain, "rosey") == embedded_url(tmp_path)
        finally:
            data.release()

    asyncio.run(story())


DENIED = {
    "the API of JetStream": ("$JS.API.INFO", "$JS.API.STREAM.DELETE.KV_kryten_playlist_likes"),
    "rows of buckets": ("$KV.kryten_playlist_acl.ns/default/admins", "$JS.API.DIRECT.GET.KV_x.y"),
    "the robot": ("kryten.robot.command", "kryten.playlist.cmd.blessed_add"),
    "replies to others": ("_INBOX.abc.def", "_INBOX_trivia.abc", "db.changes.trivia.x"),
    "the server": ("$SYS.REQ.SERVER.PING",),
}
REQUESTS = ("db.kv.trivia.get", "db.kv.trivia.get.6", "$SRV.>", "$SRV.PING")


async def rejections(
    url: str, *, publish: Sequence[str] = (), subscribe: Sequence[str] = ()
) -> int:
    """Return how many of these the server reports as violations of permissions."""
    reported: list[Exception] = []

    async def note(error: Exception) -> None:
        reported.append(error)

    client = await nats.connect(url, error_cb=note)
    for subject in publish:
        await client.publish(subject, b"{}")
    for subject in subscribe:
        await client.subscribe(subject)
    for _ in range(2):  # the server reports before it answers; the callback runs a moment later
        await client.flush()
    await client.close()
    assert all("permissions violation" in str(error) for error in reported)
    return len(reported)


def test_a_client_without_a_password_reaches_operations_and_nothing_else(tmp_path: Path) -> None:
    """It read the code of an admin on the robot's subject, made itself an admin in the bucket, and
    deleted a stream. Nor may it see, answer or forge the requests and replies of others."""

    async def story() -> None:
        data = DataDir.take(tmp_path)
        try:
            async with embedded_nats(data, 0, jetstream=True, subjects=KINDS) as server:
                plain = f"nats://127.0.0.1:{server.port}"
                service, buckets = (
                    await nats.connect(server.listener_url),
                    await nats.connect(server.url),
                )

                async def respond(message: Any) -> None:
                    await message.respond(message.data)

                await service.subscribe("db.kv.*.*", cb=respond)
                await service.flush()
                seen: list[str] = []

                async def note(message: Any) -> None:
                    seen.append(message.subject)

                client, spy = await nats.connect(plain), await nats.connect(plain)
                await spy.subscribe(">", cb=note)
                await spy.flush()
                await buckets.jetstream().create_key_value(bucket="kryten_playlist_acl")
                for subject in sum(DENIED.values(), ()):
                    await buckets.publish(subject, b"secret")
                await buckets.flush()
                assert (await client.request("db.kv.trivia.get", b"1", timeout=5)).data == b"1"
                await spy.flush()
                assert all(subject.startswith("_INBOX.") for subject in seen), seen

                for subjects in DENIED.values():
                    assert await rejections(plain, publish=subjects) == len(subjects), subjects
                assert await rejections(plain, subscribe=REQUESTS) == len(REQUESTS)
                assert await rejections(plain, publish=["db.kv.trivia.set", "$SRV.PING"]) == 0
                assert await rejections(plain, subscribe=["_INBOX_t.>", "db.changes.t.>"]) == 0
                for each in (service, buckets, client, spy):
                    await each.close()
        finally:
            data.release()

    asyncio.run(story())


def test_a_user_by_command_reaches_buckets_of_a_running_server(tmp_path: Path) -> None:
    async def story() -> None:
        data = DataDir.take(tmp_path)
        try:
            async with embedded_nats(data, 0, jetstream=True) as server:
                password = add_user(tmp_path, "robot")
                assert add_user(tmp_path, "robot") == password
                url = f"nats://robot:{password}@127.0.0.1:{server.port}"
                async with asyncio.timeout(30), connected(url) as robot:
                    bucket = await robot.jetstream().create_key_value(bucket="media")
                    await bucket.put("ns/default/likes", b"1")
                remove_user(tmp_path, "robot")
                with pytest.raises(UsageError, match="no such user"):
                    remove_user(tmp_path, "robot")
                for name in ("keyhouse", "plugin", "", "a b", "x" * 65):
                    with pytest.raises(UsageError, match="A user's name"):
                        add_user(tmp_path, name)
        finally:
            data.release()

    asyncio.run(story())


@asynccontextmanager
async def connected(url: str) -> AsyncIterator[Any]:
    """Connect as soon as the server knows the user."""
    while True:
        try:
            async with connect(url) as client:
                yield client
                return
        except UnavailableError:
            continue


@pytest.mark.parametrize("content", [b"", b"[]", b'{"robot": 1}', b"\xff", b"{"])
def test_a_damaged_file_of_users_is_named(content: bytes, tmp_path: Path) -> None:
    """A list was an AttributeError, which ended the task that restarts the server."""
    (tmp_path / "nats").mkdir()
    (tmp_path / "nats" / "users.json").write_bytes(content)
    with pytest.raises(UsageError, match="file of NATS users cannot be read"):
        add_user(tmp_path, "robot")


def test_buckets_of_a_server_without_users_are_kept(tmp_path: Path) -> None:
    """Earlier versions ran the embedded server without accounts."""

    async def put(url: str) -> None:
        client = await nats.connect(url)
        await (await client.jetstream().create_key_value(bucket="media")).put("a", b"1")
        await client.close()

    async def story() -> None:
        old = NatsServer(tmp_path / "nats", monitor_port=0)
        old.start()
        old.ready()
        await put(old.url)
        old.stop()
        data = DataDir.take(tmp_path)
        try:
            async with embedded_nats(data, 0, jetstream=True) as server:
                client = await nats.connect(server.url)
                assert (await (await client.jetstream().key_value("media")).get("a")).value == b"1"
                await client.close()
        finally:
            data.release()

    asyncio.run(story())


def test_jetstream_and_monitoring_are_off_until_they_are_needed(tmp_path: Path) -> None:
    """Any local user could record the requests of all plugins in a stream."""

    async def story() -> None:
        data = DataDir.take(tmp_path)
        try:
            async with embedded_nats(data, 0) as server:
                configuration = json.loads((tmp_path / "nats" / "nats-server.json").read_text())
                assert not {"jetstream", "http"} & set(configuration)
                assert "jetstream" not in configuration["accounts"]["keyhouse"]
                assert server.monitor is None
                assert "jetstream" not in await greeting(server.port)
                await enable_jetstream(server)
                assert (await greeting(server.port))["jetstream"] is True
        finally:
            data.release()

    asyncio.run(story())


@pytest.mark.parametrize(
    "answer",
    [b'{"stream":"SPY","seq":1}', b"not JSON", b"[1]", b'{"success":false}', b'{"success":1}'],
)
def test_a_reply_of_another_program_is_an_error_of_the_client(answer: bytes) -> None:
    """It was a KeyError."""

    async def story() -> None:
        connection = await nats.connect(nats_server().url)

        async def respond(message: Any) -> None:
            await message.respond(answer)

        await connection.subscribe("spied.kv.*.*", cb=respond)
        kv = PluginStorage(connection, "trivia", prefix="spied.kv")
        with pytest.raises(UnavailableError, match="Another program"):
            await kv.get("theme")
        await connection.close()

    asyncio.run(story())
