"""No request ever sees or changes another customer's row: thousands of customers with hostile
names, asked at random, each held against what that customer alone has done."""

import asyncio
import base64
import os
import random
import re
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from keyhouse.clock import ManualClock
from keyhouse.engine import Engine, Span
from keyhouse.engines.memory import MemoryEngine
from keyhouse_streamkit.keys import parse_kv_key
from keyhouse_streamkit.schema import CONFIGS
from keyhouse_streamkit.settings import TENANT_PATTERN
from systems.streamkit.tests.support.service import Answer, Asked, app_of, asked, serving
from tests.auth.support.forged_tokens import forgeries, hs
from tests.sizes import size
from tests.support import engine_openers
from tests.support.threaded_service import SECRET

CUSTOMERS = size(400, 10_000, 10_000)
MEETINGS = size(400, 4_000, 4_000)
"""Requests of customers whose names are close to each other, after each customer made one."""

SEED = int(os.environ.get("TEST_SEED") or 20_260_118)

WORDS = [
    "_streamkit_",
    "_streamkit",
    "streamkit_",
    "_",
    "-",
    "12",
    "12345",
    "1",
    "cust_",
    "notes",
    "swaps",
    "v2",
    "v2_notes",
]
WORDS += ["scene_activity", "text-cyclers", "layouts", "meta_job", "a", "A", "0", "admin"]
ID_WORDS = [
    *WORDS,
    ".",
    "..",
    "~",
    "%",
    "%2F",
    "%2e%2e",
    "/",
    "\\",
    "..%2f",
    "é",
    "e\u0301",
    "\u202e",
    "\u200b",
    " ",
    "*",
    ">",
]
ID_WORDS += [
    "?",
    "#",
    "&",
    ":batch",
    "cust_12345_streamkit_notes_a",
    "\x00",
    "\n",
    "+",
    "'",
    '"',
    "{id}",
    "💥",
    "_streamkit_v2_",
]
IDS_SAFE = re.compile(r"[A-Za-z0-9._~-]{1,100}")


def word(chance: random.Random, words: list[str], most: int) -> str:
    return "".join(chance.choice(words) for _ in range(chance.randint(1, most)))


def customer_names(chance: random.Random, count: int) -> tuple[list[str], list[str]]:
    """Names that can be a customer's, and names that can't, with those that fall under others among
    them."""
    good = {"12", "1", "12345", "12_", "12_streamkit_1", "a-streamkit-notes"} - {"12_streamkit_1"}
    bad = {
        "12_streamkit_notes",
        "12_streamkit",
        "12_streamkit_",
        "",
        " ",
        "é",
        "12/34",
        "12%2F",
        "..",
        "a" * 65,
        "12\n",
        ">",
    }
    while len(good) < count:
        name = word(chance, WORDS, 4)
        if len(name) < 40:
            name += str(chance.randint(0, 99_999))
        (good if re.fullmatch(TENANT_PATTERN, name) else bad).add(name)
    return sorted(good), sorted(bad)


class Tenant:
    """One customer, as it should be: what it has done and nothing else."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.configs: dict[tuple[str, str], str] = {}
        self.scenes: dict[str, int] = {}
        self.mark = f"<{name}>"

    def title(self, chance: random.Random) -> str:
        return f"{self.mark}{chance.randint(0, 999)}"

    def ids(self, category: str) -> list[str]:
        return sorted(id for kind, id in self.configs if kind == category)


def config(category: str, id: str, title: str) -> dict[str, Any]:
    shapes: dict[str, dict[str, Any]] = {
        "text-cyclers": {"name": title, "textLines": []},
        "swaps": {"name": title, "sourceA": "a", "sourceB": "b"},
        "layouts": {"name": title, "scene": "s", "sources": []},
        "notes": {"title": title, "content": ""},
    }
    return {"id": id, **shapes[category]}


def title_of(found: dict[str, Any]) -> str:
    return str(found.get("title", found.get("name")))


def sees_only_its_own(tenant: Tenant, answer: Answer) -> None:
    marks = set(re.findall(r"<[A-Za-z0-9_-]+>", answer.body.decode()))
    assert marks <= {tenant.mark}, f"{tenant.name} was shown {marks}"


async def step(ask: Asked, tenant: Tenant, chance: random.Random, names: list[str]) -> None:
    """One request of a tenant, and whether the answer is what this tenant alone has brought
    about."""
    category = chance.choice([*CONFIGS])
    other = chance.choice(names)
    hostile = [
        f"x_streamkit_{category}_a",
        f"cust_{other}_streamkit_{category}_a",
        "a",
        other[:100],
    ]
    id = chance.choice(
        [word(chance, ID_WORDS, 3), chance.choice(hostile), *(tenant.ids(category) or ["a"])[:1]]
    )
    path = f"/configs/{category}/{quote(id, safe='')}"
    there = tenant.configs.get((category, id))
    title = tenant.title(chance)
    safe = IDS_SAFE.fullmatch(id) is not None
    lies = {"customerId": other, "customer": other}

    async def send(method: str, where: str, body: object = None) -> Answer:
        answer = await ask(
            method, where, body, customer=tenant.name, headers={"x-customer-id": "12345"}
        )
        assert answer.status < 500, (method, where, answer)
        sees_only_its_own(tenant, answer)
        return answer

    match chance.randrange(9):
        case 0 | 1:
            answer = await send("POST", f"/configs/{category}", config(category, id, title) | lies)
            if there is not None:
                assert answer.status == 409
            elif safe and id not in (".", ".."):
                assert answer.status == 201, (id, answer)
                tenant.configs[category, id] = title
            else:
                assert answer.status in (400, 422), (id, answer)
        case 2:
            answer = await send("GET", path)
            assert answer.status == (404 if there is None else 200)
            assert there is None or title_of(answer.json) == there
        case 3:
            answer = await send("PUT", path, config(category, "other", title) | lies)
            assert answer.status == (404 if there is None else 200)
            if there is not None:
                tenant.configs[category, id] = title
        case 4:
            answer = await send("DELETE", path)
            assert answer.json == {"success": True, "deleted": there is not None}
            tenant.configs.pop((category, id), None)
        case 5:
            answer = await send("GET", f"/configs/{category}")
            found = {each["id"]: title_of(each) for each in answer.json["configs"]}
            assert found == {id: tenant.configs[category, id] for id in tenant.ids(category)}
        case 6:
            cursor = base64.urlsafe_b64encode(b"\x01" + id.encode()).decode().rstrip("=")
            answer = await send("GET", f"/configs/{category}?fields=ids&cursor={cursor}")
            if answer.status == 200:
                assert [each["id"] for each in answer.json["configs"]] == [
                    x for x in tenant.ids(category) if x > id
                ]
            else:
                assert answer.status == 400 and not safe
        case 7:
            scene = id[:200]
            answer = await send("POST", "/scene-activity/record", {"sceneName": scene})
            if "\x00" in scene:
                assert answer.status == 400
            else:
                tenant.scenes[scene] = tenant.scenes.get(scene, 0) + 1
                assert answer.json["count"] == tenant.scenes[scene]
        case _:
            keys = {entry["key"] for entry in (await send("GET", "/export")).json}
            own = {f"cust_{tenant.name}_streamkit_{kind}_{id}" for kind, id in tenant.configs}
            own |= {
                f"cust_{tenant.name}_streamkit_scene_activity_{scene}" for scene in tenant.scenes
            }
            assert keys == own
            theirs = {"key": f"cust_{other}_streamkit_notes_x", "value": "{}"}
            assert other == tenant.name or (await send("POST", "/import", [theirs])).status == 422


async def spaces_hold_their_own(engine: Engine, tenants: dict[str, Tenant]) -> int:
    """Every row that there is stands in the space of the customer that its key names, and that
    customer made it."""
    count = 0
    async for space in engine.spaces():
        for row in (await engine.scan(space, Span(), limit=10_000)).rows:
            found = parse_kv_key(row.key)
            assert found is not None and found["customerId"] == space
            tenant, kind, id = tenants[space], found["configType"], found["configId"]
            assert id in tenant.scenes if kind == "scene_activity" else (kind, id) in tenant.configs
            count += 1
    return count


@pytest.mark.long
@pytest.mark.soak
def test_many_customers_with_hostile_names_are_isolated(tmp_path: Path) -> None:
    print(f"TEST_SEED={SEED}")
    chance = random.Random(SEED)
    good, bad = customer_names(chance, CUSTOMERS)
    tenants = {name: Tenant(name) for name in good}

    async def run() -> None:
        engine = MemoryEngine(ManualClock())
        async with asked(tmp_path, engine) as ask:
            for name in good:  # each once, so that all are there to be met, then at random
                await step(ask, tenants[name], chance, good)
            close = ["12", "1", "12345", "12_", *chance.sample(good, 40)]
            for _ in range(MEETINGS):
                await step(ask, tenants[chance.choice(close)], chance, close)
            for name in bad:
                refused = await ask(
                    "GET", "/export", bearer=hs({"customerId": name, "exp": 9_999_999_999}, SECRET)
                )
                assert refused.status == 401, name
            rows = await spaces_hold_their_own(engine, tenants)
            assert (
                rows
                == sum(len(tenant.configs) + len(tenant.scenes) for tenant in tenants.values())
                > CUSTOMERS // 10
            )

    asyncio.run(run())


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
@pytest.mark.soak
def test_customers_with_hostile_names_are_isolated_over_http(kind: str, tmp_path: Path) -> None:
    print(f"TEST_SEED={SEED}")
    chance = random.Random(SEED)
    good, _ = customer_names(chance, 300)
    tenants = {name: Tenant(name) for name in good}

    class Over(Asked):
        """Requests through a socket."""

        async def __call__(
            self, method: str, path: str, body: object = None, **options: Any
        ) -> Answer:
            if path.rpartition("/")[2] in (".", ".."):
                return await beside(
                    method, path, body, **options
                )  # a client takes these for steps, and never sends them
            with service.client(options["customer"]) as client:
                answer = client.request(method, path, json=body, headers=options.get("headers"))
            return Answer(answer.status_code, dict(answer.headers), answer.content)

    with serving(engine_openers.ALL[kind](tmp_path), tmp_path) as service:
        over = Over(None, service.clock)  # type: ignore[arg-type]  # the app is behind the socket
        beside = Asked(app_of(MemoryEngine(service.clock), tmp_path), service.clock)

        async def run() -> None:
            for name in ["12", "1", "12345", "12_", *chance.sample(good, 8)] * size(8, 25, 25):
                await step(over, tenants[name], chance, ["12", "1", "12345", "12_"])

        asyncio.run(run())


# Tokens


ROUTES = [
    ("POST", "/configs/notes"),
    ("GET", "/configs/notes"),
    ("GET", "/configs/notes/note1"),
    ("PUT", "/configs/notes/note1"),
    ("DELETE", "/configs/notes/note1"),
    ("POST", "/configs/notes:batch"),
    ("POST", "/scene-activity/record"),
    ("GET", "/scene-activity/top"),
    ("GET", "/export"),
    ("POST", "/import"),
]


@pytest.mark.long
def test_every_forged_token_is_rejected_on_every_route(tmp_path: Path) -> None:
    async def run() -> None:
        async with asked(tmp_path) as ask:
            note = config("notes", "note1", "kept")
            assert (await ask("POST", "/configs/notes", note, customer="12345")).status == 201
            before = (await ask("GET", "/export", customer="12345")).body
            count = 0
            for name, forged in forgeries():
                for method, path in ROUTES:
                    body: Any = {} if method in ("POST", "PUT") else None
                    for options in (
                        {"bearer": forged},
                        {"headers": {"cookie": f"auth_token={forged}"}},
                    ):
                        if any(
                            ord(character) < 33 or ord(character) > 126 or character in ';,"'
                            for character in forged
                        ):
                            continue
                        answer = await ask(method, path, body, **options)
                        assert answer.status == 401, (name, method, path, answer)
                        count += 1
            assert count > 1_000
            assert (await ask("GET", "/export", customer="12345")).body == before

    asyncio.run(run())


def test_a_token_without_the_write_scope_cannot_write(tmp_path: Path) -> None:
    async def run() -> None:
        async with asked(tmp_path) as ask:
            reader = hs({"customerId": "12345", "exp": 9_999_999_999, "scope": "read"}, SECRET)
            for method, path in ROUTES:
                answer = await ask(
                    method, path, {} if method in ("POST", "PUT") else None, bearer=reader
                )
                assert (answer.status == 403) == (method != "GET"), (method, path, answer)

    asyncio.run(run())
