"""Opening the engine on NATS: credentials, permissions, and errors."""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path

import nkeys
import pytest

from keyhouse import open_engine
from keyhouse.engine import Batch, Put
from keyhouse.errors import UnavailableError, UsageError
from tests.engines.support.open_errors import SECRET, open_error
from tests.support.nats_credentials import Signer, by_jwt, by_key
from tests.support.nats_server_configs import ConfiguredServer, configured

pytestmark = pytest.mark.usefixtures("brief_retries")


@pytest.fixture
def restricted_server(tmp_path: Path) -> Iterator[ConfiguredServer]:
    """A server with a user who may do everything and one without JetStream permissions."""
    silent = {"publish": {"deny": ["$JS.API.>"]}}
    users = [
        {"user": "ann", "password": SECRET},
        {"user": "bob", "password": SECRET, "permissions": silent},
    ]
    with configured(tmp_path, authorization={"users": users}) as server:
        yield server


def test_a_wrong_password_is_reported_at_once(restricted_server: ConfiguredServer) -> None:
    error = open_error(f"{restricted_server.address('ann:wrong@')}/?bucket=rows")
    assert isinstance(error, UnavailableError)
    assert error.sentence.startswith(
        "The NATS server rejects the connection: check the user, the password"
    )
    assert "Authorization Violation" in str(error.fields["detail"])
    assert f"127.0.0.1:{restricted_server.port}" in str(error.fields["server"])


def test_a_missing_permission_is_reported_with_the_server_error(
    restricted_server: ConfiguredServer,
) -> None:
    error = open_error(f"{restricted_server.address(f'bob:{SECRET}@')}/?bucket=rows")
    assert isinstance(error, UnavailableError)
    assert error.sentence.endswith("if it is about permissions, grant them.")
    assert "permissions violation" in str(error.fields["detail"])


def test_a_correct_password_opens_the_engine(restricted_server: ConfiguredServer) -> None:
    async def opened() -> None:
        engine = await open_engine(f"{restricted_server.address(f'ann:{SECRET}@')}/?bucket=rows")
        await engine.commit("s", Batch(puts=(Put("a", b"1"),)))
        await engine.close()

    asyncio.run(opened())


@pytest.mark.parametrize("known", [by_key, by_jwt])
def test_a_credentials_file_is_required_and_must_match(
    known: Callable[[Path], AbstractContextManager[tuple[ConfiguredServer, Path]]], tmp_path: Path
) -> None:
    async def opened(url: str) -> None:
        engine = await open_engine(url)
        assert await engine.commit("s", Batch(puts=(Put("a", b"1"),))) is not None
        await engine.close()

    unknown_user = tmp_path / "unknown.nk"
    unknown_user.write_text(Signer(nkeys.PREFIX_BYTE_USER).seed)
    with known(tmp_path) as (server, file):
        asyncio.run(opened(f"{server.address()}/?bucket=rows&credentials={file}"))
        for more in ("", f"&credentials={unknown_user}"):
            error = open_error(f"{server.address()}/?bucket=rows{more}")
            assert isinstance(error, UnavailableError)
            assert error.sentence.startswith("The NATS server rejects the connection: check")


@pytest.mark.parametrize("layout", ["bucket=rows", "prefix=rows-"])
def test_a_server_without_jetstream_is_reported(tmp_path: Path, layout: str) -> None:
    with configured(tmp_path, jetstream=None) as server:
        error = open_error(f"{server.address()}/?{layout}")
    assert isinstance(error, UnavailableError)
    assert (
        error.sentence
        == "JetStream is not enabled on the NATS server, or for this account; enable it."
    )


def test_a_missing_bucket_is_created_only_with_create(tmp_path: Path) -> None:
    async def exists(url: str) -> None:
        engine = await open_engine(url)
        await engine.commit("s", Batch(puts=(Put("a", b"1"),)))
        await engine.close()
        await (await open_engine(url, create=False)).close()

    with configured(tmp_path) as server:
        url = f"{server.address()}/?bucket=rows"
        error = open_error(url, create=False)
        assert (type(error), error.sentence) == (UsageError, "The bucket does not exist.")
        asyncio.run(exists(url))
