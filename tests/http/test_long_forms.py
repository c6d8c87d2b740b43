"""Long forms are decoded while other requests run."""

import asyncio
import threading

import msgspec
import pytest

from keyhouse.errors import UsageError
from keyhouse.http import forms
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
    assert turns > 3


def test_others_run_while_many_fields_are_decoded() -> None:
    body = b"&".join([b"tag=" + b"%22" * 4_000] * 80)
    entry, turns = asyncio.run(turns_while_reading(body))
    assert entry.tag == ['"' * 4_000] * 80
    assert turns > 3


def test_long_forms_are_decoded_one_after_the_other() -> None:
    """Eight senders of long forms, who need no account, kept six threads at the interpreter: other
    requests took 40 ms instead of 1."""
    threads = set()

    class Noted(msgspec.Struct):
        title: str

        def __post_init__(self) -> None:
            threads.add(threading.get_ident())

    async def read_many() -> None:
        reader = forms.FormReader(Noted)
        body = b"title=" + b"%22" * 30_000
        await asyncio.gather(*(reader.read(forms.URLENCODED, body) for _ in range(8)))

    asyncio.run(read_many())
    assert len(threads) == 1 and threading.get_ident() not in threads


def test_a_short_form_is_decoded_at_once() -> None:
    entry, turns = asyncio.run(turns_while_reading(b"title=a+b%20c&tag=%26&&tag="))
    assert (entry, turns) == (Entry("a b c", ["&", ""]), 0)


def test_a_long_field_that_is_not_utf8_is_rejected() -> None:
    with pytest.raises(UsageError, match="not UTF-8"):
        asyncio.run(turns_while_reading(b"title=" + b"%ff" * 20_000))
