"""Errors of a service, raised by its HTTP client as Keyhouse's own."""

import httpx
import pytest

from keyhouse.advice.http_arguments import service_url
from keyhouse.errors import (
    ConflictError,
    EngineError,
    KeyhouseError,
    QuotaError,
    UnavailableError,
    UnknownOutcomeError,
    UsageError,
)
from keyhouse.service.http_client import HttpClient, tenant_of_token, translated


def respond(status: int, **response: object) -> HttpClient:
    transport = httpx.MockTransport(
        lambda request: httpx.Response(status, **response)  # type: ignore[arg-type]  # keywords of Response
    )
    return HttpClient("http://test", token="t", transport=transport)


@pytest.mark.parametrize(
    "body",
    [
        {"detail": "Wait.", "code": "QUOTA_EXCEEDED", "fields": {"retry_after": 7}},
        {"error": {"message": "Wait.", "code": "QUOTA_EXCEEDED", "details": {"retry_after": 7}}},
        {"error": "Wait.", "code": "QUOTA_EXCEEDED", "fields": {"retry_after": 7}},
    ],
)
def test_an_error_in_each_format_is_raised_by_its_code(body: dict[str, object]) -> None:
    with respond(429, json=body) as client, pytest.raises(QuotaError) as raised:
        client.request("GET", "/")
    assert (raised.value.sentence, raised.value.fields) == ("Wait.", {"retry_after": 7})


def test_the_code_that_a_service_named_is_kept() -> None:
    taken = {"error": {"message": "Taken.", "code": "name_taken", "details": {}}}
    with respond(409, json=taken) as client, pytest.raises(ConflictError) as raised:
        client.request("GET", "/")
    assert (raised.value.code, raised.value.copy().code) == ("name_taken", "name_taken")


def test_an_error_of_the_service_names_the_request_in_its_log() -> None:
    problem = {"detail": "Internal error.", "code": "INTERNAL_ERROR", "requestId": "r1"}
    with respond(500, json=problem) as client, pytest.raises(KeyhouseError) as raised:
        client.request("GET", "/")
    assert raised.value.fields == {"request_id": "r1"}


@pytest.mark.parametrize("body", [b"<html>", b"[]", b"\xff"])
def test_an_error_without_a_problem_document_is_raised_by_its_status(body: bytes) -> None:
    with respond(502, content=body) as client, pytest.raises(EngineError):
        client.request("GET", "/")


def test_lost_responses_are_unavailable_or_unknown() -> None:
    with pytest.raises(UnavailableError), translated(UnknownOutcomeError):
        raise httpx.ConnectError("refused")
    with pytest.raises(UnknownOutcomeError), translated(UnknownOutcomeError):
        raise httpx.ReadTimeout("late")


def test_a_service_is_below_its_mount_unless_the_url_has_a_path() -> None:
    assert service_url("http://host:8080/", "/streamkit") == "http://host:8080/streamkit"
    assert service_url("https://host/api/kit", "/streamkit") == "https://host/api/kit"
    with pytest.raises(UsageError, match="--store http"):
        service_url("nats://host", "/streamkit")


@pytest.mark.parametrize("token", ["", "a", "a.b.c", "a.bm8.c"])
def test_a_malformed_token_is_rejected(token: str) -> None:
    with pytest.raises(UsageError, match="Invalid token"):
        tenant_of_token(token, system="streamkit")


def test_the_first_claim_that_a_token_has_names_its_tenant() -> None:
    body = "eyJ1c2VySWQiOiI3Iiwic3ViIjoiOCJ9"  # {"userId":"7","sub":"8"}
    assert tenant_of_token(f"h.{body}.s", system="x") == "7"
    with pytest.raises(UsageError, match="names no tenant"):
        tenant_of_token(f"h.{body}.s", ("customerId",), system="x")
