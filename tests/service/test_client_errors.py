"""Client errors: found by code or status, and raised by commands as Keyhouse's own."""

import httpx
import pytest

from keyhouse.errors import (
    CallerError,
    DataError,
    EngineError,
    RevisionError,
    UnavailableError,
    UnknownOutcomeError,
    UsageError,
)
from keyhouse.service.errors import ClientError, ErrorMap
from keyhouse.service.http_client import HttpClient, service_url, tenant_of_token, translated


class Invalid(ClientError):
    codes = ("VALIDATION_ERROR",)
    statuses = (400, 422)
    local = CallerError


class Conflict(ClientError):
    codes = ("CONFLICT",)
    statuses = (412,)
    local = RevisionError


class Failed(ClientError):
    statuses = (500,)
    local = EngineError


ERRORS = ErrorMap(ClientError, Invalid, Conflict, Failed)


def test_an_error_is_found_by_code_or_status() -> None:
    assert ERRORS.find(code="CONFLICT") is Conflict
    assert ERRORS.find(status=422) is Invalid
    assert ERRORS.find(status=503) is Failed
    assert ERRORS.find(status=418) is ERRORS.find(code="NEW_CODE") is ClientError


def test_an_error_becomes_a_local_one_with_its_reason() -> None:
    error = Invalid("Invalid field.", status=422, fields={"reason": "Expected `int`", "at": "a"})
    local = error.to_local()
    assert type(local) is CallerError
    assert local.fields == {"reason": "Invalid field. Expected `int`", "at": "a", "status": 422}
    assert type(ClientError("?").to_local()) is DataError
    assert str(Conflict("Changed.", code="CONFLICT", fields={"id": "a"})) == (
        "CONFLICT: Changed. (id='a')"
    )


def respond(status: int, **response: object) -> HttpClient:
    transport = httpx.MockTransport(
        lambda request: httpx.Response(status, **response)  # type: ignore[arg-type]  # keywords of Response
    )
    return HttpClient("http://test", errors=ERRORS, token="t", transport=transport)


def test_the_text_of_a_flat_error_is_the_message() -> None:
    flat = {"error": "Changed meanwhile.", "code": "CONFLICT", "status": 412}
    with respond(412, json=flat) as client, pytest.raises(Conflict, match="Changed meanwhile"):
        client.request("GET", "/")


def test_a_problem_document_is_raised_with_its_members() -> None:
    problem = {"detail": "Wait.", "code": "RATE_LIMITED", "fields": {"a": 1}, "requestId": "r1"}
    with (
        respond(412, json=problem, headers={"Retry-After": "7"}) as client,
        pytest.raises(Conflict) as raised,
    ):
        client.request("GET", "/")
    error = raised.value
    assert (error.message, error.code, error.status) == ("Wait.", "RATE_LIMITED", 412)
    assert (error.fields, error.retry_after, error.request_id) == ({"a": 1}, 7.0, "r1")


@pytest.mark.parametrize("body", [b"<html>", b"[]", b"\xff"])
def test_an_error_without_a_problem_document_is_raised_by_its_status(body: bytes) -> None:
    with respond(502, content=body) as client, pytest.raises(Failed):
        client.request("GET", "/")


def test_lost_responses_are_unavailable_or_unknown() -> None:
    with pytest.raises(UnavailableError), translated(UnknownOutcomeError):
        raise httpx.ConnectError("refused")
    with pytest.raises(UnknownOutcomeError), translated(UnknownOutcomeError):
        raise httpx.ReadTimeout("late")


def test_a_service_is_below_its_mount_unless_the_url_has_a_path() -> None:
    assert service_url("http://host:8080/", "/streamkit") == "http://host:8080/streamkit"
    assert service_url("https://host/api/kit", "/streamkit") == "https://host/api/kit"
    with pytest.raises(UsageError, match="--service http"):
        service_url("nats://host", "/streamkit")


@pytest.mark.parametrize("token", ["", "a", "a.b.c", "a.bm8.c"])
def test_a_malformed_token_is_rejected(token: str) -> None:
    with pytest.raises(UsageError, match="Invalid token"):
        tenant_of_token(token, ("sub",), system="streamkit")


def test_the_first_claim_that_a_token_has_names_its_tenant() -> None:
    body = "eyJ1c2VySWQiOiI3Iiwic3ViIjoiOCJ9"  # {"userId":"7","sub":"8"}
    assert tenant_of_token(f"h.{body}.s", ("customerId", "userId", "sub"), system="x") == "7"
    with pytest.raises(UsageError, match="names no tenant"):
        tenant_of_token(f"h.{body}.s", ("customerId",), system="x")
