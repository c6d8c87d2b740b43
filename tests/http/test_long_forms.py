"""Long forms are decoded in pieces, between which other requests run."""

import asyncio
from unittest.mock import patch

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from keyhouse.errors import UsageError
from keyhouse.http import forms
from keyhouse.http.signature import query_pairs
from tests.support.event_loop_turns import turns_during


class Entry(msgspec.Struct):
    title: str = ""
    tag: list[str] = []


READER = forms.FormReader(Entry)


async def turns_while_reading(body: bytes) -> tuple[Entry, int]:
    return await turns_during(READER.read(forms.URLENCODED, body))


def test_others_run_while_a_long_field_is_decoded() -> None:
    """A megabyte of `%22` was decoded at once, before the caller was known: 0.1 s for all."""
    entry, turns = asyncio.run(turns_while_reading(b"title=" + b"%22" * 340_000))
    assert entry.title == '"' * 340_000
    assert turns >= 1_020_000 // (16 * 1_024)


def test_others_run_while_many_fields_are_decoded() -> None:
    body = b"&".join([b"tag=" + b"%22" * 4_000] * 80)
    entry, turns = asyncio.run(turns_while_reading(body))
    assert entry.tag == ['"' * 4_000] * 80
    assert turns >= 40


def test_a_short_form_is_decoded_at_once() -> None:
    entry, turns = asyncio.run(turns_while_reading(b"title=a+b%20c&tag=%26&&tag="))
    assert (entry, turns) == (Entry("a b c", ["&", ""]), 0)


def test_a_long_field_that_is_not_utf8_is_rejected() -> None:
    with pytest.raises(UsageError, match="not UTF-8"):
        asyncio.run(turns_while_reading(b"title=" + b"%ff" * 20_000))


PIECES = st.sampled_from([b"%", b"%2", b"%22", b"%c3%a9", b"%zz", b"+", b"a", b"=", b"&", b"%e2"])


@given(st.lists(PIECES, max_size=60).map(b"".join), st.integers(3, 9))
def test_pieces_decode_as_the_whole_does(body: bytes, piece_bytes: int) -> None:
    try:
        expected: list[tuple[str, str]] | None = [*query_pairs(body)]
    except UsageError:
        expected = None
    with patch.object(forms, "_UNQUOTED_BYTES", piece_bytes):
        if expected is None:
            with pytest.raises(UsageError):
                asyncio.run(forms._urlencoded(body))
        else:
            assert asyncio.run(forms._urlencoded(body)) == expected
