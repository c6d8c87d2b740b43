"""What the server sends is taken apart as the driver does it, wherever it is cut."""

import asyncio
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from nats.errors import ProtocolError
from nats.protocol import parser

from keyhouse.nats.fast_parser import Parser

WORDS = st.binary(min_size=1, max_size=6).filter(lambda word: not set(word) & set(b" \t\r\n"))
DATA = st.binary(max_size=20) | st.just(b"MSG a 1 2\r\n") | st.just(b"\r\n")


def message(subject: bytes, number: int, reply: bytes, data: bytes) -> bytes:
    return b"MSG %b %d %b%d\r\n%b\r\n" % (subject, number, reply and reply + b" ", len(data), data)


def with_header(subject: bytes, data: bytes) -> bytes:
    header = b"NATS/1.0\r\nA: b\r\n\r\n"
    return b"HMSG %b 7 %d %d\r\n%b%b\r\n" % (
        subject,
        len(header),
        len(header) + len(data),
        header,
        data,
    )


SENT = st.lists(
    st.builds(message, WORDS, st.integers(0, 99), WORDS | st.just(b""), DATA)
    | st.builds(with_header, WORDS, DATA)
    | st.sampled_from(
        [b"PING\r\n", b"+OK\r\n", b"MSG  a \t1\t2\r\n{}\r\n", b"MSG a 007 2\r\n{}\r\n"]
    ),
    max_size=8,
)


class Client:
    """Notes what it is handed, and now and then waits, as one does that lets others have a turn. To the driver's parser it
    knows no takers."""

    is_reconnecting = False

    def __init__(self) -> None:
        self.taken: list[Any] = []
        self.takers = {b"%d" % number: number for number in range(50)}

    def give(self, taker: int, subject: bytes, reply: bytes, data: bytes) -> bool:
        self.taken.append((taker, subject, reply, data, None))
        return len(self.taken) % 2 == 0

    async def _process_msg(self, *message: Any) -> None:
        self.taken.append(message)
        await asyncio.sleep(0)

    async def _process_ping(self) -> None:
        self.taken.append("ping")


async def taken(kind: type[parser.Parser], pieces: list[bytes]) -> list[Any]:
    client = Client()
    parsing = kind(client)
    for piece in pieces:
        await parsing.parse(piece)
    return [*client.taken, bytes(parsing.buf)]


@given(SENT, st.lists(st.integers(0, 400), max_size=6))
def test_whole_messages_and_pieces_of_them_are_what_the_driver_reads(
    sent: list[bytes], cuts: list[int]
) -> None:
    stream = b"".join(sent)
    ends = [0, *sorted(cuts), len(stream)]
    pieces = [stream[start:end] for start, end in pairwise(ends)]
    expected = asyncio.run(taken(parser.Parser, [stream]))
    assert asyncio.run(taken(Parser, pieces)) == expected
    assert len(expected) == sum(each != b"+OK\r\n" for each in sent) + 1


@pytest.mark.parametrize("kind", [Parser, parser.Parser])
@pytest.mark.parametrize("line", [b"MSG a %b 2\r\n{}\r\n", b"MSG a 1 %b\r\n{}\r\n"])
def test_a_number_that_python_refuses_is_a_broken_protocol(
    kind: type[parser.Parser], line: bytes
) -> None:
    """At any other error the driver stops reading, and stays connected."""
    with pytest.raises(ProtocolError):
        asyncio.run(taken(kind, [line % (b"9" * 5_000)]))


def test_a_message_larger_than_there_is_is_waited_for() -> None:
    sent = b"MSG a 99999999999999999999 2\r\n{}\r\nMSG a 1 99999999999999999999\r\n{}\r\n"
    assert asyncio.run(taken(Parser, [sent])) == asyncio.run(taken(parser.Parser, [sent]))
