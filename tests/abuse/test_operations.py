"""Every NATS operation under clients that repeat the most expensive request, flood and send
nonsense: a neighbor does not notice, and memory stays bounded.

The operations are those that the running service lists. A usual run attacks each for a moment,
beside one neighbor; `make soak` each for a minute.
"""

import asyncio
import json
import random
import socket
from contextlib import closing
from pathlib import Path
from typing import Any, Final

import nats
import pytest

from keyhouse.schema import RecordCount, Summary, Unique
from tests.abuse.attacks import asking, asking_at, put_values
from tests.abuse.support.attack import Client, Stop, check_neighbor
from tests.abuse.support.server import ServerProcess
from tests.sizes import size
from tests.support.seeds import new_seed
from tests.support.verb_requests import Sample, verb_requests

SECONDS_EACH = size(100, 300, 300) / 1_000
TOGETHER = size(4, 1, 1)
"""Operations that are attacked at once."""
LARGE = "x" * 60_000
KEYS = [f"k{number:05d}" for number in range(1_000)]

EXPENSIVE: Final[dict[str, dict[str, Any]]] = {
    "set": {"key": "a", "value": LARGE},
    "get": {"key": "k00000"},
    "delete": {"key": "a"},
    "list": {"limit": 10_000},
    "mget": {"keys": KEYS},
    "incr": {"key": "n"},
    "cas": {"key": "a", "value": LARGE, "revision": None},
    "batch": {"ops": [{"op": "set", "key": f"b{n}", "value": n} for n in range(1_000)]},
    "scan": {"limit": 10_000},
    "count": {},
    "watch": {"subject": "_INBOX_mallory.changes", "since": 0},
    "touch": {"key": "k00000", "ttl": 1_000},
}
"""The most expensive request of each operation."""


@pytest.mark.long
@pytest.mark.soak
def test_no_operation_takes_memory_or_time_from_a_neighbor(tmp_path: Path) -> None:
    with ServerProcess(tmp_path) as server:
        operations = asyncio.run(listed_operations(server.nats))
        assert operations == set(EXPENSIVE), "an operation has no attack here"
        put_values(server, "mallory", 1_000, 60_000)
        attacks = {operation: clients(operation) for operation in sorted(operations)}
        check_neighbor(server, attacks, seconds=SECONDS_EACH, together=TOGETHER)
        assert "unhandled exception" not in server.log.read_text()


RECIPES: Final = "tests.service.schema_service.support.recipes:BOX"
RECIPE: Final[dict[str, Any]] = {"id": "a", "title": "t", "slug": "a", "note": LARGE}
SAMPLES: Final = {
    "record": Sample(
        "recipe",
        {"id": "a"},
        {"value": RECIPE, "addresses": [{"id": f"r{number:03}"} for number in range(300)]},
        {
            Unique: ("slug", {"slug": "r000"}),
            RecordCount: ("tag_count", {"tag": "t"}),
            Summary: ("tagged", {"tag": "t"}),
        },
    ),
    "counter": Sample(
        "visits", {"id": "r000", "day": "2026-01-31"}, {"by": 1}, query={"id": "r000"}
    ),
    "log": Sample("cooked", {}, {"value": {"stars": 1}}, query={"recipe": "r000"}),
}
NOTES: Final[list[dict[str, Any]]] = [
    {"op": "put", "record": "note", "fields": {"name": f"n{number}"}, "value": "x"}
    for number in range(500)
]

OF_OTHERS: Final[dict[str, dict[str, dict[str, Any]]]] = {
    "recipes": verb_requests(
        SAMPLES, operations=NOTES, watch={"subject": "_INBOX_mallory.changes", "since": 0}
    ),
    "playlist": {
        "catalog_refresh": {},
        "queue_apply": {"playlist_id": "x"},
        "blessed_add": {"username": "mallory"},
        "blessed_remove": {"username": "mallory"},
        "blessed_list": {},
    },
}
"""Requests of the operations of other services, by service: those of a schema from its table."""


@pytest.mark.long
@pytest.mark.soak
@pytest.mark.parametrize("service", OF_OTHERS)
def test_no_operation_of_another_service_takes_memory_or_time_from_a_neighbor(
    service: str, tmp_path: Path
) -> None:
    system = RECIPES if service == "recipes" else service
    with ServerProcess(tmp_path, "rosey", "streamkit", system) as server:
        subjects = asyncio.run(listed_subjects(server.nats_of(service), service))
        bodies = OF_OTHERS[service]
        assert set(subjects) == set(bodies), "an operation has no attack here"
        if service == "recipes":
            asyncio.run(put_recipes(server.nats))
        attacks = {
            name: [asking_at(subjects[name], body), asking_at(subjects[name], body)]
            for name, body in bodies.items()
        }
        check_neighbor(server, attacks, seconds=SECONDS_EACH, together=TOGETHER)
        assert "unhandled exception" not in server.log.read_text()


async def listed_subjects(url: str, service: str) -> dict[str, str]:
    """Return the subjects of the operations that a service lists, of the tenant `mallory`."""
    connection = await nats.connect(url)
    info = json.loads((await connection.request(f"$SRV.INFO.{service}", timeout=60)).data)
    await connection.close()
    return {each["name"]: each["subject"].replace("*", "mallory") for each in info["endpoints"]}


async def put_recipes(url: str) -> None:
    connection = await nats.connect(url)
    for number in range(300):
        id = f"r{number:03}"
        value = {"id": id, "title": "t", "slug": id, "note": "x" * 10_000}
        body = json.dumps({"record": "recipe", "value": value}).encode()
        reply = await connection.request("keyhouse.recipes.mallory.create", body, timeout=30)
        assert json.loads(reply.data)["success"], reply.data
    await connection.close()


@pytest.mark.long
@pytest.mark.soak
def test_nonsense_over_nats_leaves_memory_flat_and_is_answered_by_documented_codes(
    tmp_path: Path,
) -> None:
    inputs = size(1_000, 4_000, 200_000)
    seed = new_seed()
    with ServerProcess(tmp_path, rosey={"rate_per_second": 0.0}) as server:
        asyncio.run(fuzz(server, random.Random(seed), inputs // 4))
        settled = server.rss_bytes
        codes = asyncio.run(fuzz(server, random.Random(seed + 1), inputs * 3 // 4))
        growth = server.rss_bytes - settled
        print(
            f"{inputs} inputs, RSS {settled >> 20} MB after a quarter,"
            f" {growth >> 20:+} MB at the end"
        )
        assert growth < 48 * 1_024 * 1_024
        assert "INTERNAL_ERROR" not in codes and "DATABASE_ERROR" not in codes, codes
        assert {"INVALID_JSON", "MISSING_FIELD", "VALIDATION_ERROR"} <= codes
        assert "unhandled exception" not in server.log.read_text()


async def listed_operations(url: str) -> set[str]:
    """Return the operations that the service lists by the micro protocol."""
    connection = await nats.connect(url)
    info = json.loads((await connection.request("$SRV.INFO.rosey", timeout=60)).data)
    await connection.close()
    return {endpoint["name"] for endpoint in info["endpoints"]}


def clients(operation: str) -> list[Client]:
    """Return clients that repeat the request, and one that floods without waiting for replies."""
    repeating = [asking("mallory", operation, EXPENSIVE[operation]) for _ in range(2)]
    return [*repeating, flooding(operation)]


def flooding(operation: str) -> Client:
    data = json.dumps(EXPENSIVE[operation]).encode()
    count = max(10, 500_000 // len(data))
    message = f"PUB db.kv.mallory.{operation} {len(data)}\r\n".encode() + data + b"\r\n"

    def attack(server: ServerProcess, stop: Stop) -> None:
        with closing(socket.create_connection(server.nats_address)) as connection:
            connection.sendall(b'CONNECT {"verbose":false}\r\n')
            while not stop.is_set():
                connection.sendall(message * min(count, 5_000))
                stop.wait(0.5)

    return attack


async def fuzz(server: ServerProcess, rng: random.Random, inputs: int) -> set[str]:
    """Send mutated requests and return the error codes of the replies."""
    connection = await nats.connect(server.nats)
    codes: set[str] = set()

    async def ask() -> None:
        operation = rng.choice(list(EXPENSIVE))
        plugin = rng.choice(["mallory", "p", "Ä", "A" * 101, "p%", "0"])
        reply = await connection.request(
            f"db.kv.{plugin}.{operation}", nonsense(rng, operation), timeout=60
        )
        codes.add(json.loads(reply.data).get("error_code", ""))

    for _ in range(0, inputs, 50):
        await asyncio.gather(*(ask() for _ in range(50)))
    await connection.close()
    return codes


def nonsense(rng: random.Random, operation: str) -> bytes:
    wrong: list[Any] = [None, -1, 2**70, 1.5, "", "\0", "x" * 300, [], {}, [[]], True]
    body = {
        name: rng.choice([value, rng.choice(wrong)])
        for name, value in EXPENSIVE[operation].items()
        if rng.random() < 0.8 and operation not in ("batch", "mget", "watch")
    }
    body |= {name: rng.choice(wrong) for name in ("key", "ttl", "limit") if rng.random() < 0.3}
    data = bytearray(json.dumps(body).encode())
    for _ in range(rng.choice([0, 0, 0, 1, 3])):
        data[rng.randrange(len(data))] = rng.randrange(256)
    return bytes(data)
