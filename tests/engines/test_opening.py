"""`open_engine` with an unreachable server: one sentence that says what to do."""

import pytest

from keyhouse.errors import UnavailableError, UsageError
from tests.engines.support.open_errors import SECRET, open_error

pytestmark = pytest.mark.usefixtures("brief_retries")


@pytest.mark.parametrize(
    "url",
    [
        f"postgresql://ann:{SECRET}@127.0.0.1:1/rows",
        f"postgresql://127.0.0.1:1/rows?user=ann&password={SECRET}",
        f"nats://ann:{SECRET}@127.0.0.1:1/?bucket=rows",
    ],
)
def test_an_unreachable_server_is_reported_at_once_with_its_address(url: str) -> None:
    error = open_error(url)
    assert isinstance(error, UnavailableError)
    assert error.sentence.endswith(
        "cannot be reached; check that it runs, and the host and port in the URL."
    )
    assert "127.0.0.1:1" in str(error)


def test_unreachable_dynamodb_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "ann")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    error = open_error("dynamodb://rows?region=eu-west-1&endpoint=http://127.0.0.1:1")
    assert isinstance(error, UnavailableError)
    assert error.sentence == "DynamoDB cannot be reached; check the endpoint and the network."


def test_a_password_with_a_slash_is_not_parsed_as_a_host() -> None:
    assert isinstance(open_error(f"postgresql://ann:1/{SECRET}@host/rows"), UsageError)
