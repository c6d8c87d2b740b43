"""Private and sealed members, planted in every kind of row, are in no answer of the Studio below
`studio:admin`, and in no log line.

The routes are those of the routing table, so that a new one is searched without being listed here.
"""

import asyncio
import base64
import re
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from structlog.testing import capture_logs

from keyhouse import Store, open_engine
from keyhouse.engine import Batch, Engine, Put
from keyhouse.http import make_app
from keyhouse.service.spec import Keyspace
from keyhouse.studio import Studio, StudioSettings, StudioSystem, SystemCatalog
from tests.studio.support.jobs import ended, running_jobs
from tests.studio.support.library import SECRET as JWT_SECRET
from tests.studio.support.library import Library, send
from tests.support.planted_secrets import (
    BY_PIN,
    PERSON,
    PLANTED,
    RING,
    SECRET,
    leaked,
    person,
    plant,
)

MAIN = "/studio/planted/main"
BELOW_ADMIN = (("studio:read",), ("studio:write",))
RECORDS = (PERSON,)


@asynccontextmanager
async def planted(folder: Path) -> AsyncIterator[Library]:
    """Serve the Studio over a space with planted secrets, also in rows that do not decode."""
    engine, own = await open_engine("memory:"), await open_engine("memory:")
    keyspace = Keyspace(schema=PLANTED, engine=engine, key_ring=RING)
    system = StudioSystem(name="planted", title="Planted", engine="memory:", keyspaces=[keyspace])
    studio = Studio(SystemCatalog([system]), own, folder, StudioSettings(jwt_secret=JWT_SECRET))
    served = Library(engine, studio, make_app([studio.spec()]), PLANTED)
    served.store = Store(PLANTED, engine, "main", key_ring=RING)
    try:
        await plant(served.store)
        await broken(engine)
        yield served
    finally:
        await own.close()
        await engine.close()


async def broken(engine: Engine) -> None:
    """Add rows that a verification reports, and records that do not decode."""
    await engine.commit(
        "main",
        Batch(
            puts=(
                Put("person:x1", f'{{"id": "x1", "pin": "{SECRET}-broken'.encode()),
                Put("person:x2", f'{{"id": "x2", "name": 7, "pin": "{SECRET}-typed"}}'.encode()),
                Put(f"idx:person:pin:{SECRET}-dangling:p9", b"1"),
                Put(f"idx:person:upin:{SECRET}-wrong", b'"p9"'),
                Put("list:person:team:blue", f'{{"people": {{"p9": "{SECRET}"}}}}'.encode()),
            )
        ),
    )


async def use(served: Library) -> list[str]:
    """Let an admin change, delete, reveal and verify, and return the ids of journal and jobs."""
    async with served.signed_in(unlocked=True) as admin, running_jobs(served):
        started = await admin.post(f"{MAIN}/verify", data={"action": "verify"})
        ids = [(await ended(admin, started))["job"]["id"]]
        row = await served.store.row("person:p0")
        assert row is not None
        text = f'{{"id": "p0", "name": "New", "pin": "{SECRET}-new"}}'
        form = {"k": "person:p0", "revision": str(row.revision), "action": "save", "text": text}
        assert (await send(admin, f"{MAIN}/edit", form)).status_code == 303
        for key in ("person:p1", f"idx:person:pin:{SECRET}-pin-1:p1"):
            shown = await send(admin, f"{MAIN}/key", {"k": key, "action": "reveal"})
            assert shown.status_code == 200 and leaked(shown.text), key
        for selection in (
            {"record": "person", "q": f"pin={SECRET}-pin-2"},
            {"record": "person", "by": "pin", "q": f"pin:{SECRET}-pin-2*"},
        ):
            page = (await admin.get(f"{MAIN}/bulk.json", params=selection)).json()
            form = {**selection, "count": str(page["counted"]["count"])}
            if page["counted"]["count"]:
                job = await ended(admin, await send(admin, f"{MAIN}/bulk", form))
                ids.append(job["job"]["id"])
        assert len(ids) >= 2
        lines = (await admin.get("/studio/journal.json")).json()["lines"]
        assert len(lines) > 5
        return ids + [line["id"] for line in lines]


def requests(served: Library, ids: list[str]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield every GET route, filled with each record, prefix, key and id that a reader may name."""
    keys = ["person:p0", "person:p1", "person:x1", "person:x2", "list:person:team:red"]
    prefixes = ["", "p", "person:", "idx:", "idx:person:", "num:", "list:"]
    prefixes += [each.template.head for record in RECORDS for each in record.derived]
    prefixes += ["idx:person:team_pin:red:", "idx:person:team:red:"]
    filters: list[dict[str, Any]] = [{}, {"by": "team"}, {"q": "team=red"}, {"reverse": "true"}]
    for route in served.studio.spec().routes:
        if route.method != "GET" or "assets" in route.path:
            continue
        path = route.path.replace("{system}", "planted").replace("{space}", "main")
        end = path.rpartition("/")[2].removesuffix(".json")
        if "{record}" in path:
            for record in RECORDS:
                for each in filters:
                    yield path.replace("{record}", record.name), each
        elif end == "tree":
            yield from ((path, {"at": prefix}) for prefix in prefixes)
            yield from ((path, {"after": prefix}) for prefix in prefixes)
        elif end in ("key", "edit", "live"):
            yield from ((path, {"k": key}) for key in keys)
            yield from ((path, {"k": key, "mode": "text"}) for key in keys if end == "edit")
        elif end in ("export", "bulk"):
            yield from ((path, {"prefix": prefix}) for prefix in prefixes)
            yield from ((path, {"record": record.name}) for record in RECORDS)
            yield from ((path, {"k": key}) for key in keys)
        elif end in ("job", "change"):
            yield from ((path, {"id": id}) for id in ids)
        else:
            yield path, {}


def decoded(text: str) -> str:
    """Return a text with everything in it that may be base64, such as cursors, decoded too."""
    found = [text]
    for word in set(re.findall(r"[A-Za-z0-9_-]{12,}", text)):
        whole = word[: len(word) // 4 * 4]
        found.append(base64.urlsafe_b64decode(whole).decode("latin-1"))
    return "\n".join(found)


async def first_event(served: Library, client: httpx.AsyncClient, key: str) -> str:
    """Return what a stream of a record's changes sends for one change."""
    sent: list[str] = []
    opened, changed = asyncio.Event(), asyncio.Event()
    cookie = "; ".join(f"{name}={value}" for name, value in client.cookies.items())
    scope = {
        "type": "http",
        "method": "GET",
        "path": f"{MAIN}/live",
        "raw_path": f"{MAIN}/live".encode(),
        "query_string": f"k={key}".encode(),
        "root_path": "",
        "headers": [(b"host", b"localhost"), (b"cookie", cookie.encode())],
        "client": ("127.0.0.1", 1),
        "scheme": "http",
        "http_version": "1.1",
        "server": ("localhost", 80),
    }

    async def write(message: dict[str, Any]) -> None:
        sent.append(str(message))
        opened.set()
        if "event: put" in sent[-1]:
            changed.set()

    async def receive() -> dict[str, Any]:
        await asyncio.Event().wait()
        raise AssertionError

    streaming = asyncio.ensure_future(served.app(scope, receive, write))
    async with asyncio.timeout(20):
        await opened.wait()
        await served.store.put(PERSON, person(1))
        await changed.wait()
    streaming.cancel()
    await asyncio.gather(streaming, return_exceptions=True)
    return "".join(sent)


@pytest.mark.parametrize("scopes", BELOW_ADMIN)
def test_no_page_or_log_line_below_admin_has_a_planted_secret(
    scopes: tuple[str, ...], tmp_path: Path
) -> None:
    """The tree listed pins, related rows named them, filters found them, and the log had the
    keys."""

    async def main() -> None:
        async with planted(tmp_path) as served:
            ids = await use(served)
            walked = 0
            with capture_logs() as lines:
                async with served.signed_in(*scopes) as reader:
                    for path, params in requests(served, ids):
                        if path.endswith("/live"):
                            continue
                        answer = await reader.get(f"/studio{path}", params=params)
                        assert answer.status_code < 500, (path, params, answer.text)
                        found = leaked(decoded(answer.text) + str(answer.headers))
                        assert not found, (path, params, found)
                        walked += answer.status_code == 200
                    assert not leaked(await first_event(served, reader, "person:p1"))
            assert walked > 100
            assert not leaked(str(lines))

    asyncio.run(main())


@pytest.mark.parametrize("scopes", BELOW_ADMIN)
def test_previews_of_a_change_have_no_planted_secret(
    scopes: tuple[str, ...], tmp_path: Path
) -> None:
    async def main() -> None:
        async with planted(tmp_path) as served, served.signed_in(*scopes) as reader:
            row = await served.store.row("person:p0")
            assert row is not None
            for action in ("preview", "preview-delete"):
                text = '{"id": "p0", "name": "Other", "team": "blue"}'
                form = {"k": "person:p0", "revision": str(row.revision), "action": action}
                page = await send(reader, f"{MAIN}/edit", form | {"text": text})
                assert page.status_code == 200 and "Preview: the commit" in page.text
                assert "idx:person:team:" in page.text and not leaked(page.text)

    asyncio.run(main())


def test_a_guess_of_a_private_member_is_answered_alike_whether_it_is_right(tmp_path: Path) -> None:
    """A filter by a prefix spelled a pin out, letter by letter."""

    async def main() -> None:
        async with planted(tmp_path) as served, served.signed_in("studio:write") as reader:
            asked = 0
            for value in (f"{SECRET}-pin-1", f"{SECRET}-absent"):
                for path, params in (
                    ("tree.json", {"at": f"idx:person:pin:{value}"}),
                    ("tree.json", {"at": "idx:person:pin:", "after": f"idx:person:pin:{value}"}),
                    ("tree.json", {"at": f"idx:person:team_pin:red:{value}"}),
                    ("tree.json", {"at": f"num:person:pin:{value}"}),
                    ("key.json", {"k": f"idx:person:upin:{value}"}),
                    ("person.json", {"by": "pin"}),
                    ("person.json", {"by": "pin", "q": f"pin={value}"}),
                    ("person.json", {"q": f"pin:{value}*"}),
                    ("person.json", {"pin": value}),
                    ("export", {"prefix": f"idx:person:pin:{value}"}),
                    ("export", {"record": "person", "by": "pin", "q": f"pin={value}"}),
                ):
                    answer = await reader.get(f"{MAIN}/{path}", params=params)
                    is_rejected = answer.status_code in (400, 403) or answer.json()["error"]
                    assert is_rejected, (path, params, answer.text)
                    asked += 1
            assert asked == 22

    asyncio.run(main())


def test_a_prefix_is_labelled_with_all_templates_below_it(tmp_path: Path) -> None:
    """`idx:` was labelled with the template of its first key."""

    async def main() -> None:
        async with planted(tmp_path) as served, served.signed_in("studio:read") as reader:
            indexes = [each.template.text for each in PERSON.derived]
            for at, text, templates in (
                ("", "idx:", [each for each in indexes if each.startswith("idx:")]),
                ("", "num:", ["num:person:pin:{pin}"]),
                ("idx:person:", "idx:person:team:", ["idx:person:team:{team}:{id}"]),
                ("idx:person:team:", "idx:person:team:red:", ["idx:person:team:{team}:{id}"]),
            ):
                nodes = (await reader.get(f"{MAIN}/tree.json", params={"at": at})).json()["nodes"]
                [node] = [node for node in nodes if node["text"] == text]
                assert set(templates) <= set(node["templates"]), (at, node)
                page = (await reader.get(f"{MAIN}/tree", params={"at": at})).text
                assert all(each in page for each in templates)

    asyncio.run(main())


def test_an_admin_sees_and_filters_by_private_fields(tmp_path: Path) -> None:
    async def main() -> None:
        async with planted(tmp_path) as served, served.signed_in() as admin:
            tree = (
                await admin.get(f"{MAIN}/tree.json", params={"at": BY_PIN.template.head})
            ).json()
            assert [node["label"] for node in tree["nodes"]][1] == f"{SECRET}-pin-0:"
            params = {"q": f"pin={SECRET}-pin-1"}
            table = (await admin.get(f"{MAIN}/person.json", params=params)).json()
            assert [row["key"] for row in table["rows"]] == ["person:p1"]

    asyncio.run(main())
