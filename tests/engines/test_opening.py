"""What `open_engine` says when a server is not there: one sentence that says what to do."""

import pytest

from keyhouse.errors import UnavailableError, UsageError
from tests.engines.support.open_errors import SECRET, refusal


@pytest.mark.parametrize(
    "url",
    [
        f"postgresql://ann:{SECRET}@127.0.0.1:1/rows",
        f"postgresql://127.0.0.1:1/rows?user=ann&password={SECRET}",
        f"nats://ann:{SECRET}@127.0.0.1:1/?bucket=rows",
    ],
)
def test_a_server_that_is_not_there_is_said_to_be_so_at_once_and_named(url: str) -> None:
    error = refusal(url)
    assert isinstance(error, UnavailableError)
    assert error.sentence.endswith(
        "can't be reached; see that it runs, and look at host and port in the URL."
    )
    assert "127.0.0.1:1" in str(error)


def test_dynamodb_that_is_not_there_is_said_to_be_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "ann")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    error = refusal("dynamodb://rows?region=eu-west-1&endpoint=http://127.0.0.1:1")
    assert isinstance(error, UnavailableError)
    assert error.sentence == "DynamoDB can't be reached; look at the endpoint and the network."


def test_a_password_with_a_slash_is_not_taken_for_a_host() -> None:
    assert isinstance(refusal(f"postgresql://ann:1/{SECRET}@host/rows"), UsageError)
