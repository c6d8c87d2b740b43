"""A service that connects to NATS with a credentials file: `nats_credentials`."""

import asyncio
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

import nats
import pytest

from keyhouse.errors import UnavailableError
from keyhouse.nats.credentials import sign_in
from keyhouse.serve.server import Server
from keyhouse.settings.sources import load_settings
from tests.serve.support import jars
from tests.support.nats_credentials import by_jwt, by_key
from tests.support.nats_server_configs import ConfiguredServer


@pytest.mark.parametrize("known", [by_key, by_jwt])
def test_a_credentials_file_is_required_where_the_server_asks_for_one(
    known: Callable[[Path], AbstractContextManager[tuple[ConfiguredServer, Path]]], tmp_path: Path
) -> None:
    async def asked(server: ConfiguredServer, user: Path, **flags: str) -> bytes:
        place = {
            "data": str(tmp_path / "data"),
            "engine": "memory:",
            "http": "off",
            "nats": server.address(),
        }
        async with Server(
            load_settings(place | flags, {}, None, systems=("jars",)), {"jars": jars.service}
        ):
            client = await nats.connect(server.address(), **sign_in(str(user)))
            answer = await client.request("jars.put", b'["jam", 7]', timeout=30)
            await client.close()
            return answer.data

    with known(tmp_path) as (server, file):
        assert asyncio.run(asked(server, file, nats_credentials=str(file))) == b"7"
        with pytest.raises(UnavailableError) as refused:
            asyncio.run(asked(server, file))
        assert refused.value.sentence.startswith(
            "The NATS server rejects the connection: check user and password"
        )
        assert "Authorization Violation" in str(refused.value)
