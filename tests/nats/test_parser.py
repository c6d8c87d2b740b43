"""The parser of the NATS client finds what nats-py's own finds, wherever the bytes are cut."""

import asyncio
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from nats.errors import ProtocolError
from nats.protocol import parser

from keyhouse.nats.client import FeedingReader
from keyhouse.nats.parser import CONTROL_LINE_BYTES_MAX, Parser

HANDLED = 50
"""Subscriptions below this number have a handler."""

RAW = 25
"""Of these, subscriptions below this number have a raw handler."""

WORDS = st.binary(min_size=1, max_size=6).filter(lambda word: not set(word) & set(b" \t\r\n\v\f"))
DATA = st.binary(max_size=20) | st.just(b"MSG a 1 2\r\n") | st.just(b"\r\n")
HEADER = b"NATS/1.0\r\nA: b\r\n\r\n"


def message(subject: bytes, number: int, reply: bytes, data: bytes) -> bytes:
    return b"MSG %b %d %b%d\r\n%b\r\n" % (subject, number, reply and reply + b" ", len(data), data)


def with_header(subject: bytes, number: int, reply: bytes, data: bytes) -> bytes:
    sizes = b"%d %d" % (len(HEADER), len(HEADER) + len(data))
    return b"HMSG %b %d %b%b\r\n%b%b\r\n" % (
        *(subject, number, reply and reply + b" ", sizes),
        *(HEADER, data),
    )


OPERATIONS = st.lists(
    st.builds(message, WORDS, st.integers(0, 99), WORDS | st.just(b""), DATA)
    | st.builds(with_header, WORDS, st.integers(0, 99), WORDS | st.just(b""), DATA)
    | st.sampled_from(
        [
            b"PING\r\n",
            b"PONG\r\n",
            b"+OK\r\n",
            b"-ERR 'Permissions Violation'\r\n",
            b'INFO {"a": 1}\r\n',
            b"MSG  a \t1\t2\r\n{}\r\n",
        ]
    ),
    max_size=8,
)


class Client:
    """Records what the parser passes on, and sometimes yields to the event loop."""

    def __init__(self) -> None:
        self.received: list[Any] = []
        self.raw_handlers = {b"%d" % number: number for number in range(RAW)}
        self.handlers = {b"%d" % number: number for number in range(RAW, HANDLED)}

    def deliver(self, handler: int, subject: bytes, reply: bytes, data: bytes) -> bool:
        self.received.append((handler, subject, reply, data, None))
        return len(self.received) % 2 == 0

    def deliver_raw(
        self, handler: int, subject: bytes, reply: bytes, headers: bytes, data: bytes
    ) -> bool:
        self.received.append((handler, subject, reply, data, headers or None))
        return len(self.received) % 3 == 0

    async def _process_msg(
        self, sid: int, subject: bytes, reply: bytes, data: bytes, headers: bytes | None
    ) -> None:
        headers = None if RAW <= sid < HANDLED else headers  # a handler receives none
        self.received.append((sid, subject, reply, data, headers))
        await asyncio.sleep(0)

    async def _process_ping(self) -> None:
        self.received.append("ping")

    async def _process_pong(self) -> None:
        self.received.append("pong")

    async def _process_err(self, text: str) -> None:
        self.received.append(text)

    async def _process_info(self, info: Any) -> None:
        self.received.append(info)


async def received(kind: Any, pieces: list[bytes], *, feeds: bool = False) -> list[Any]:
    client = Client()
    parsing = kind(client)
    for piece in pieces:
        rest = parsing.feed(piece) if feeds else piece
        if rest or not feeds:
            await parsing.parse(rest)
    return client.received


@given(OPERATIONS, st.lists(st.integers(0, 400), max_size=6))
def test_operations_cut_anywhere_are_those_that_nats_py_parses(
    operations: list[bytes], cuts: list[int]
) -> None:
    stream = b"".join(operations)
    ends = [0, *sorted(cuts), len(stream)]
    pieces = [stream[start:end] for start, end in pairwise(ends)]
    expected = asyncio.run(received(parser.Parser, [stream]))
    assert asyncio.run(received(Parser, pieces)) == expected
    assert asyncio.run(received(Parser, pieces, feeds=True)) == expected
    assert len(expected) == sum(each != b"+OK\r\n" for each in operations)


def test_a_word_ends_at_a_space_or_a_tab_only() -> None:
    """nats-py also ends it at a form feed, takes the line for a broken protocol and disconnects."""
    stream = message(b"a\fb", 1, b"c\vd", b"{}")
    assert asyncio.run(received(Parser, [stream])) == [(1, b"a\fb", b"c\vd", b"{}", None)]


def test_messages_with_a_handler_are_passed_on_without_the_reading_task() -> None:
    client = Client()
    parsing = Parser(client)
    handled, other = message(b"a", RAW, b"r", b"{}"), message(b"a", HANDLED, b"", b"{}")
    assert parsing.feed(handled) == b""
    assert parsing.feed(handled + handled) == handled  # other tasks run first
    assert parsing.feed(handled + other + handled) == other + handled
    assert parsing.feed(handled[:-3]) == handled[:-3]
    raw = with_header(b"a", 1, b"r", b"{}")
    assert parsing.feed(raw + raw + message(b"a", 1, b"", b"{}")) == b""
    assert client.received == [
        *[(RAW, b"a", b"r", b"{}", None)] * 3,
        *[(1, b"a", b"r", b"{}", HEADER)] * 2,
        (1, b"a", b"", b"{}", None),
    ]


@pytest.mark.parametrize(
    "line",
    [
        b"MSG a %b 2\r\n{}\r\n" % (b"9" * 5_000),
        b"MSG a 1 %b\r\n{}\r\n" % (b"9" * 5_000),
        b"MSG a 1\r\n",
        b"MSG a 1 b c 2\r\n{}\r\n",
        b"HMSG a 1 2\r\n{}\r\n",
        b"HMSG a\r\n",
        b"MSGS a 1 2\r\n{}\r\n",
        b"INFO {\r\n",
        b"HTTP/1.1 400 Bad Request\r\n",
        b"x" * (CONTROL_LINE_BYTES_MAX + 1),
    ],
    ids=lambda line: repr(line[:20]),
)
def test_bytes_that_are_not_of_the_protocol_raise_a_protocol_error(line: bytes) -> None:
    """At any other exception nats-py stops reading and stays connected."""
    for feeds in (False, True):
        with pytest.raises(ProtocolError):
            asyncio.run(received(Parser, [line], feeds=feeds))
    assert Parser(Client()).feed(line) == line


def test_a_payload_longer_than_the_bytes_so_far_is_waited_for() -> None:
    sent = b"MSG a 1 99999999999999999999\r\n{}\r\nMSG a 1 2\r\n{}\r\n"
    assert asyncio.run(received(Parser, [sent, sent])) == []


def test_a_large_payload_in_small_pieces_is_joined_once() -> None:
    stream = message(b"a", 1, b"", b"x" * 1_000_000)
    pieces = [stream[at : at + 1_000] for at in range(0, len(stream), 1_000)]
    assert asyncio.run(received(Parser, pieces)) == [(1, b"a", b"", b"x" * 1_000_000, None)]


def test_bytes_that_come_before_the_task_has_read_the_rest_stay_behind_it() -> None:
    """Otherwise messages would be handled before those that precede them."""

    async def scenario() -> list[bytes]:
        fed: list[bytes] = []

        def feed(data: bytes) -> bytes:
            fed.append(data)
            return data[1:]

        reader = FeedingReader(feed)
        reader.feed_data(b"early")  # nobody waits: for `readline` at the start of a connection
        assert await reader.read(100) == b"early"
        reading = asyncio.create_task(reader.read(100))
        await asyncio.sleep(0)
        reader.feed_data(b"1")
        reader.feed_data(b"23")
        reader.feed_data(b"4")
        assert await reading == b"34"
        return fed

    assert asyncio.run(scenario()) == [b"1", b"23"]
