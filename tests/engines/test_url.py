"""Redacted URLs and engine errors contain no password, however malformed the URL."""

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from keyhouse.engines.registry import SCHEMES, open_engine
from keyhouse.engines.url import public_url
from keyhouse.errors import KeyhouseError, UnavailableError, UsageError

SECRET = "S3cr3t"


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        (
            f"postgresql://ann:{SECRET}@host:5432/rows?layout=x",
            "postgresql://host:5432/rows?layout=x",
        ),
        (f"nats://{SECRET}@host", "nats://host"),
        (f"nats://ann:{SECRET}@one:4222,two:4222/?bucket=b", "nats://one:4222,two:4222/?bucket=b"),
        (f"nats://ann:{SECRET}@one,bob:{SECRET}@two", "nats://two"),
        (
            f"postgresql://host/rows?user=ann&password={SECRET}&ssl=on",
            "postgresql://host/rows?user=…&password=…&ssl=on",
        ),
        (f"postgresql://host/rows?sslPassword={SECRET}", "postgresql://host/rows?sslPassword=…"),
        (f"dynamodb://table?endpoint=http://ann:{SECRET}@host", "dynamodb://host"),
        (
            f"dynamodb://table?aws_secret_access_key={SECRET}",
            "dynamodb://table?aws_secret_access_key=…",
        ),
        (f"mysql://ann:{SECRET}@host/rows", "mysql://host/rows"),
        (f"mysql:ann:{SECRET}@host", "mysql:host"),
        (f"ann:{SECRET}@host", "ann:host"),
        (f"{SECRET}@host", "host"),
        (f"postgresql://ann:{SECRET}/?#[@host", "postgresql://host"),
    ],
)
def test_a_password_is_not_shown(url: str, shown: str) -> None:
    assert public_url(url) == shown


@pytest.mark.parametrize(
    "url",
    [
        "sqlite:a@b.db",
        "sqlite:////srv/rows.db?layout=rosey",
        "rocksdb:a@b",
        "memory:",
        "nats://host/?bucket=a",
        "",
    ],
)
def test_a_url_without_secrets_is_unchanged(url: str) -> None:
    assert public_url(url) == url


@given(st.sampled_from(["nats", "postgresql", "dynamodb", "redis", "x"]), st.text(), st.text())
def test_a_password_is_redacted_in_any_context(scheme: str, before: str, after: str) -> None:
    shown = public_url(f"{scheme}://ann:{before}{SECRET}{after}@host/rows")
    assert SECRET not in shown


BAD = [
    *(
        f"{scheme}://ann:{SECRET}@host:99999999/a/b?no=1"
        for scheme in SCHEMES
        if scheme not in ("sqlite", "rocksdb", "memory")
    ),
    f"mysql://ann:{SECRET}@host/rows",
    f"postgresql://ann:{SECRET}#{SECRET}@host/rows",
    f"postgresql://ann:9{SECRET}/{SECRET}@host:x/rows",
    f"postgresql://ann:{SECRET}@127.0.0.1:1/rows",
    f"postgresql://127.0.0.1:1/rows?user=ann&password={SECRET}",
    f"nats://ann:{SECRET}@127.0.0.1:1/?bucket=b",
    f"nats://{SECRET}@127.0.0.1:1/?bucket=b&replicas=2",
]


@pytest.mark.usefixtures("brief_retries")
@pytest.mark.parametrize("url", BAD)
def test_no_engine_error_contains_a_password(url: str) -> None:
    async def meet() -> KeyhouseError:
        try:
            engine = await open_engine(url)
        except KeyhouseError as error:
            return error
        try:
            async with asyncio.timeout(30):
                await engine.read("s", ["k"])
        except KeyhouseError as error:
            return error
        finally:
            await engine.close()
        raise AssertionError("there was no error")

    error = asyncio.run(meet())
    assert isinstance(error, (UsageError, UnavailableError))
    assert SECRET not in f"{error} {error!r} {error.fields}"
    cause = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    assert SECRET not in f"{cause} {cause!r}"
