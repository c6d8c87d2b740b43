"""The embedded nats-server: who can connect, and what it offers."""

import asyncio
import json
import stat
from pathlib import Path
from typing import Any

import msgspec
import nats
import pytest

from keyhouse import Record, Schema, Space
from keyhouse.cli.access import _with_user
from keyhouse.errors import UnavailableError
from keyhouse.nats.connection import connect
from keyhouse.nats.credentials import embedded_url, with_embedded_user
from keyhouse.remote_store import RemoteStore
from keyhouse.serve.data_dir import DataDir
from keyhouse.serve.nats_access import embedded_nats, enable_jetstream
from keyhouse.service.nats_client import connect_to_service
from keyhouse.systems.rosey.client import PluginStorage, ServiceUnavailable
from tests.support.nats_servers import nats_server


class Recipe(msgspec.Struct):
    name: str


RECIPE = Record(Recipe, "recipe:{name}")
BOX = Schema("box", RECIPE, space=Space("a cook"))


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
            async with embedded_nats(data, 0, password="0123456789abcdef") as server:
                file = tmp_path / "nats" / "nats-server.json"
                assert stat.S_IMODE(file.stat().st_mode) == 0o600
                plain = f"nats://127.0.0.1:{server.port}"
                with pytest.raises(UnavailableError, match="rejects the connection"):
                    async with connect(plain):
                        raise AssertionError("connected without the password")
                assert embedded_url(tmp_path) == server.url == with_embedded_user(plain, tmp_path)
                assert with_embedded_user("nats://127.0.0.1:1", tmp_path) == "nats://127.0.0.1:1"
                assert with_embedded_user("nats://other:4222", tmp_path) == "nats://other:4222"
                monkeypatch.setenv("KEYHOUSE_DATA", str(tmp_path))
                for url in (None, plain):
                    async with PluginStorage.connect("trivia", url) as kv:
                        with pytest.raises(ServiceUnavailable, match="No plugin storage"):
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
            async with embedded_nats(data, 0, password="0123456789abcdef") as server:
                plain = f"nats://127.0.0.1:{server.port}"
                with pytest.raises(UnavailableError, match="set KEYHOUSE_DATA to the data folder"):
                    await connect_to_service(plain, "rosey", "plugin", "trivia")
                async with asyncio.timeout(30), RemoteStore(BOX, plain, space="ann") as store:
                    with pytest.raises(UnavailableError, match="Authorization Violation"):
                        await store.get(RECIPE, name="soup")
                (tmp_path / "keyhouse.toml").write_text(f'data = "{tmp_path}"')
                monkeypatch.chdir(tmp_path)
                assert _with_user(plain, "rosey") == server.url
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
                assert not {"jetstream", "http", "authorization"} & set(configuration)
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
        with pytest.raises(ServiceUnavailable, match="Another program"):
            await kv.get("theme")
        await connection.close()

    asyncio.run(story())
