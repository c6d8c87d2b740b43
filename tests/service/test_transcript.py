"""Clients see the replies of the transcript, byte for byte: those of every operation over HTTP and
NATS, on every kind of record and derived row."""

import asyncio
from pathlib import Path

import pytest

from keyhouse.schema.operation import OPERATIONS
from keyhouse_rosey.messages import OPERATIONS as ROSEY_OPERATIONS
from tests.service.support.transcript import read, replay
from tests.service.support.transcript_requests import SCHEMA

pytestmark = pytest.mark.long

LINES = read()
ADVICE = "a change that is meant is recorded by `python -m tests.service.support.transcript`"


def test_the_replies_are_those_of_the_transcript(tmp_path: Path) -> None:
    replies = asyncio.run(replay(LINES, tmp_path))
    pairs = zip(LINES, replies, strict=True)
    different = [(line, reply) for line, reply in pairs if reply != line]
    for line, reply in different[:1]:
        assert reply == line, (len(different), ADVICE)


def test_every_operation_has_a_reply_over_nats() -> None:
    """A new operation is recorded too."""
    answered = {
        (line["to"], line["nats"].rpartition(".")[2])
        for line in LINES
        if "nats" in line and line["reply"] is not None and not line["reply"][0]
    }
    own = {each.name for each in SCHEMA.operations} - {"sneak", "mistaken", "failing"}
    expected = {("kinds", name) for name in (*OPERATIONS, *own)}
    expected |= {("rosey", name) for name in ROSEY_OPERATIONS}
    assert expected <= answered, sorted(expected - answered)


def test_every_route_has_a_reply_over_http(tmp_path: Path) -> None:
    [document] = [line for line in LINES if line.get("http") == "GET /openapi.json"][:1]
    routes = [name for name in document["reply"][2] if name.partition(" ")[2].startswith("/")]
    prefix = f"/{SCHEMA.name}"
    sent = {line["http"].partition("?")[0] for line in LINES if "http" in line}
    shapes = {
        (text.split(" ")[0].lower(), text.count("/"), text.split("/")[1:3][-1]) for text in sent
    }
    for route in routes:
        method, _, path = route.partition(" ")
        path = path.removeprefix(prefix)
        assert (method, path.count("/"), path.split("/")[1:3][-1]) in shapes, route
