"""A command over NATS whose user may not use the space."""

import asyncio
import subprocess
from pathlib import Path

import pytest

from keyhouse.errors import AccessError
from keyhouse.nats.server import ReservedPort, find_binary
from keyhouse.service.nats_acl import NatsUser, authorization
from keyhouse.service.schema_service.acl import space_users
from keyhouse.service.schema_service.remote import SchemaRemotes
from keyhouse.store import ANY
from tests.remote_store.support.shows import GUIDE
from tests.support.polling import until


async def listens(port: int) -> bool:
    try:
        _, writer = await asyncio.open_connection("127.0.0.1", port)
    except OSError:
        return False
    writer.close()
    return True


def test_a_missing_permission_is_reported_at_once(tmp_path: Path) -> None:
    """A request that the server had denied ended after 30 seconds, as one without a reply."""
    reserved = ReservedPort()
    reader = NatsUser("reads", "pw", ["keyhouse.tv.ann.get"], ["_INBOX_ann.>"], "_INBOX_ann")
    users = space_users(GUIDE, ["bob"])
    configuration = tmp_path / "nats.conf"
    address = f"host: 127.0.0.1\nport: {reserved.number}\n"
    configuration.write_text(address + authorization([*users, reader]))

    async def scenario() -> None:
        await until(lambda: listens(reserved.number))
        for user in (users[1], reader):
            url = f"nats://{user.user}:{user.password}@127.0.0.1:{reserved.number}"
            remote = await SchemaRemotes(GUIDE).connect(url, "ann", None)
            with pytest.raises(AccessError, match="keyhouse acl"):
                async with asyncio.timeout(20):
                    await remote.put("show:dark", b"{}", ttl=None, expect=ANY)
            await remote.close()

    command = [find_binary(), "--config", str(configuration)]
    with subprocess.Popen(command, stderr=subprocess.DEVNULL) as server:
        try:
            asyncio.run(scenario())
        finally:
            server.kill()
