"""Conditional requests: a client is not sent a version that it has, and does not overwrite one that
it has not seen."""

import pytest

from keyhouse.errors import RevisionError, UsageError
from keyhouse.http import App, Conditions, etag, make_app
from keyhouse.http.preconditions import conditions
from tests.http.support.asgi_client import Answered, ask
from tests.http.support.shop import shop

TEA = "/shop/things/drinks/tea"


def put(app: App, name: str = "tea", **headers: str) -> Answered:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return ask(app, "PUT", TEA, b'{"name":"%s"}' % name.encode(), named)


def test_a_matching_etag_gets_304_without_a_body() -> None:
    app = make_app([shop()])
    put(app)
    for tags in ('"1"', 'W/"1"', '"0", "1"', "*"):
        answered = ask(app, "GET", TEA, headers={"If-None-Match": tags})
        assert (answered.status, answered.body, answered.header("etag")) == (304, b"", '"1"')
        assert answered.header("content-length") is None
    assert ask(app, "GET", TEA, headers={"If-None-Match": '"2"'}).status == 200
    assert ask(app, "HEAD", TEA, headers={"If-None-Match": '"1"'}).status == 304


def test_if_match_rejects_a_changed_record() -> None:
    app = make_app([shop()])
    assert put(app, If_Match='"1"').status == 412, "there is nothing yet"
    assert put(app, If_Match="*").status == 412
    assert put(app).header("etag") == '"1"'
    assert put(app, If_Match='"1"').header("etag") == '"2"'
    lost = put(app, If_Match='"1"')
    assert (lost.status, lost.json()["type"]) == (412, "urn:keyhouse:error:revision")
    assert put(app, If_Match='W/"2"').status == 412, "a weak tag never matches here"
    assert put(app, If_Match='"7", "2"').status == 200
    assert put(app, If_Match="*").status == 200


def test_if_none_match_rejects_an_existing_record() -> None:
    app = make_app([shop()])
    assert put(app, If_None_Match="*").status == 201
    assert put(app, If_None_Match="*").status == 412


def test_etags_may_be_in_several_header_lines() -> None:
    app = make_app([shop()])
    put(app)
    headers = [("If-None-Match", '"7"'), ("If-None-Match", '"1"')]
    assert ask(app, "GET", TEA, headers=headers).status == 304


@pytest.mark.parametrize("text", ["1", '"1', "'1'", '"a" "b"', 'w/"1"', "**", '"a\x00"', ""])
def test_an_invalid_etag_is_rejected(text: str) -> None:
    with pytest.raises(UsageError):
        conditions(text, None)


def test_parsing_a_long_list_takes_linear_time() -> None:
    """Ambiguous etags and commas could be split in many ways. Each blank between two commas doubled
    the time: thirty of them, on any route, blocked the service for an hour."""
    for doubtful in (
        '"a",' * 2_000 + '"',
        '"a"' + ", " * 2_000 + "x",
        '"a"' + ",\t " * 2_000 + '"',
        " " * 9_000 + "x",
    ):
        with pytest.raises(UsageError):
            conditions(None, doubtful)
    assert conditions('"a" , ,\t"b",', None).if_match == ('"a"', '"b"')
    found = conditions(None, ",".join(f'"{number}"' for number in range(2_000)))
    assert found.if_none_match is not None and len(found.if_none_match) == 2_000


def test_a_precondition_compares_revisions() -> None:
    conditions(etag(3), None).check(3)
    Conditions().check(None)
    with pytest.raises(RevisionError):
        conditions(etag(3), None).check(None)
    with pytest.raises(RevisionError):
        conditions(None, etag(3)).check(3)
