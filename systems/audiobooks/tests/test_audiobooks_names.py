"""The audiobook library's normal forms: names in keys, and ISBNs."""

import re
from typing import Any

import httpx
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from keyhouse.errors import RecordError
from keyhouse.keys import normal
from keyhouse_audiobooks.books.isbn import isbn10, isbn13
from keyhouse_audiobooks.schema import AUTHOR_BY_NAME, BOOKS_BY_TITLE, WORK_BY_TITLE
from systems.audiobooks.tests.support.service import PASSWORD
from tests.support.cases import cases
from tests.support.store_driver import ulid

BOOK_ID = ulid(5)


# Names

NAMES = st.text(
    st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1
).filter(normal)


@given(name=NAMES)
@example(name="  STRASSE ﬁ\t№ ")
@example(name="a:b%3Ac")
@example(name="İstanbul")
def test_a_name_in_a_key_is_its_normal_form(name: str) -> None:
    for template in (AUTHOR_BY_NAME.template, BOOKS_BY_TITLE.template, WORK_BY_TITLE.template):
        others = {field: BOOK_ID for field in template.fields[1:]}
        key = template.build({template.fields[0]: name, **others})
        assert template.parse(key) == {template.fields[0]: normal(name), **others}
        assert template.build({template.fields[0]: normal(name), **others}) == key
        assert normal(normal(name)) == normal(name)


@pytest.mark.parametrize(
    "spelling",
    [
        "The Left Hand",
        "the left hand",
        "  The\u00a0LEFT \t hand\n",
        "Ｔhe Left Hand",
        "THE LEFT HAND",
    ],
)
def test_spellings_of_a_name_are_one_key(spelling: str) -> None:
    assert (
        AUTHOR_BY_NAME.template.build({"normalized_name": spelling})
        == "idx:author:name:the left hand"
    )


# ISBNs


@pytest.mark.parametrize(
    ("text", "plain"),
    [
        ("0-306-40615-2", "0306406152"),
        ("080442957x", "080442957X"),
        (" 0 8044 2957 X ", "080442957X"),
    ],
)
def test_an_isbn_10_is_stored_in_its_normal_form(text: str, plain: str) -> None:
    assert isbn10(text) == plain


@pytest.mark.parametrize("text", ["978-0-306-40615-7", "9780306406157", "978 0 306 40615 7"])
def test_an_isbn_13_is_stored_in_its_normal_form(text: str) -> None:
    assert isbn13(text) == "9780306406157"


@pytest.mark.parametrize(
    "text",
    [
        "0306406153",
        "030640615",
        "03064061522",
        "X306406152",
        "",
        "٠٣٠٦٤٠٦١٥٢",
        "0804429570",
        "x" * 10,
    ],
)
def test_an_invalid_isbn_10_is_rejected(text: str) -> None:
    with pytest.raises(RecordError):
        isbn10(text)


@pytest.mark.parametrize(
    "text", ["9780306406158", "978030640615", "97803064061577", "978030640615X", "", "a" * 13]
)
def test_an_invalid_isbn_13_is_rejected(text: str) -> None:
    with pytest.raises(RecordError):
        isbn13(text)


@given(
    digits=st.lists(st.integers(0, 9), min_size=13, max_size=13),
    at=st.integers(0, 12),
    other=st.integers(1, 9),
)
def test_one_wrong_digit_is_always_detected(digits: list[int], at: int, other: int) -> None:
    digits[12] = (
        -sum(weight * digit for weight, digit in zip([1, 3] * 6, digits, strict=False)) % 10
    )
    assert isbn13("".join(map(str, digits)))
    digits[at] = (digits[at] + other) % 10
    with pytest.raises(RecordError):
        isbn13("".join(map(str, digits)))


@cases(
    "method, path, body, member",
    [
        ("POST", "/authors", {"name": " "}, "name"),
        ("POST", "/series", {"name": "\0"}, "name"),
        ("POST", "/works", {"title": " "}, "title"),
        ("POST", "/books", {"title": " "}, "title"),
        ("POST", "/books", {"title": "T", "tags": [" "]}, "tags"),
        ("POST", "/books", {"title": "T", "genres": [" "]}, "genres"),
        ("POST", "/books", {"title": "T", "author_id": "0" * 26}, "no such author"),
        ("POST", "/books", {"title": "T", "series_id": "0" * 26}, "no such series"),
        ("POST", "/playlists", {"name": "P", "book_ids": ["0" * 26]}, "no such book"),
        ("POST", "/users", {"username": "ADMIN", "password": PASSWORD, "roles": []}, "username"),
        ("PUT", "/preferences/a%00b", 1, "key"),
    ],
)
def test_what_cannot_be_stored_is_named_by_its_member_and_not_by_a_key(
    admin: httpx.Client, method: str, path: str, body: Any, member: str
) -> None:
    """Errors had the templates of index rows, and keys of the store."""
    reply = admin.request(method, path, json=body)
    error = reply.json()["error"]
    assert reply.status_code in (409, 422) and member in error, error
    assert "normalized" not in error and not re.search(r"\{\w+:\w+\}|idx:|\b\w+:0{26}", error)
