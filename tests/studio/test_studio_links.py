"""Records named like a page, streams of ended sessions, and links in a preview."""

import asyncio
from pathlib import Path

import msgspec
import pytest

from keyhouse import Index, Record, Schema, Space, Store
from keyhouse.engine import Batch, Put
from keyhouse.schema import Owner
from keyhouse.studio.rendering import SPACE_PAGES, record_name, record_segment
from tests.studio.support.library import BOOK, Book, fill, library, send
from tests.support.polling import until

MAIN = "/studio/library/main"


class Thing(msgspec.Struct):
    id: str
    owner: str = ""


TREE = Record(Thing, "tree:{id}", name="tree")
OF_OWNER = Index("leaves:{owner}:{id}")
LEAF = Record(Thing, "leaf:{id}", OF_OWNER, name="tree.json", belongs_to=Owner(TREE, by=OF_OWNER))
FOREST = Schema("forest", TREE, LEAF, space=Space("a forest"), doc="Trees own leaves.")


def test_records_with_the_name_of_a_page_are_reached_by_their_links(tmp_path: Path) -> None:
    async def main() -> None:
        async with library(tmp_path, schema=FOREST) as served:
            await served.store.put(TREE, Thing("oak"))
            await served.store.put(LEAF, Thing("l1", "oak"))
            paths = {route.path for route in served.studio.spec().routes}
            below = "/{system}/{space}/"
            pages = {path.removeprefix(below) for path in paths if path.startswith(below)}
            named = {each for each in pages if each and "{" not in each and "." not in each}
            assert named == SPACE_PAGES
            async with served.signed_in("studio:read") as client:
                text = (await client.get(f"{MAIN}/")).text
                for name, key in (("~tree~", "tree:oak"), ("~tree.json~", "leaf:l1")):
                    assert f'href="{MAIN}/{name}"' in text
                    assert key in (await client.get(f"{MAIN}/{name}")).text
                    rows = (await client.get(f"{MAIN}/{name}.json")).json()["rows"]
                    assert [row["key"] for row in rows] == [key]
                assert (await client.get(f"{MAIN}/tree.json")).json()["nodes"]

    asyncio.run(main())


NOTE = Record(Thing, "ns/{namespace}/note/{id}", name="note")
NOTES = Schema("notes", NOTE, space=Space("notes", name="main"), fixed={"namespace": "default"})


def test_the_settings_of_a_service_are_in_its_keys_and_other_spaces_are_left_out(
    tmp_path: Path,
) -> None:
    async def main() -> None:
        async with library(tmp_path, schema=NOTES, fixed={"namespace": "mine"}) as served:
            for namespace in ("mine", "default"):
                store = Store(NOTES, served.engine, "main", namespace=namespace)
                await store.put(NOTE, Thing("n1"))
            await served.engine.commit("another-program", Batch(puts=(Put("x", b"1"),)))
            async with served.signed_in("studio:read") as client:
                spaces = (await client.get("/studio/library/index.json")).json()["spaces"]
                assert [each["name"] for each in spaces] == ["main"]
                rows = (await client.get(f"{MAIN}/note.json")).json()["rows"]
                assert [row["key"] for row in rows] == ["ns/mine/note/n1"]
                for namespace in ("mine", "default"):
                    params = {"k": f"ns/{namespace}/note/n1"}
                    page = (await client.get(f"{MAIN}/key.json", params=params)).json()
                    assert page["exists"] and page["is_record"], namespace

    asyncio.run(main())


@pytest.mark.parametrize("name", ["book", "tree", "a.json", "~", "~x~", "~x", "x~", "é/ü"])
def test_the_segment_of_a_record_means_that_record(name: str) -> None:
    assert record_name(record_segment(name)) == name


def test_a_preview_names_a_link_that_does_not_hold(tmp_path: Path) -> None:
    async def main() -> None:
        async with library(tmp_path, schema=FOREST) as served:
            await served.store.put(TREE, Thing("oak"))
            await served.store.put(LEAF, Thing("l1", "oak"))
            async with served.signed_in("studio:read") as client:
                form = {"k": "leaf:l2", "revision": "absent", "action": "preview", "mode": "text"}
                text = '{"id": "l2", "owner": "elm"}'
                answer = await send(client, f"{MAIN}/edit", form | {"text": text})
                assert answer.status_code == 409, answer.text
                assert "belongs to does not exist" in answer.text
                assert "tree:elm" in answer.text
                text = '{"id": "l2", "owner": "oak"}'
                answer = await send(client, f"{MAIN}/edit", form | {"text": text})
                assert "check <code>tree:oak at " in answer.text
                form = {"k": "tree:oak", "revision": "1", "action": "preview-delete"}
                answer = await send(client, f"{MAIN}/edit", form)
                assert answer.status_code == 200
                assert "delete leaf:l1" in answer.text, "what belongs to it is deleted too"
                assert await served.store.count(LEAF) == 1

    asyncio.run(main())


def test_the_open_stream_of_a_revoked_session_ends(tmp_path: Path) -> None:
    async def main() -> None:
        async with library(tmp_path) as served:
            await fill(served.store)
            async with served.signed_in("studio:read") as viewer:
                cookie = viewer.headers.get("cookie") or "; ".join(
                    f"{name}={value}" for name, value in viewer.cookies.items()
                )
                scope = {
                    "type": "http",
                    "method": "GET",
                    "path": f"{MAIN}/live",
                    "raw_path": f"{MAIN}/live".encode(),
                    "query_string": b"k=book:b000",
                    "root_path": "",
                    "headers": [(b"host", b"localhost"), (b"cookie", cookie.encode())],
                    "client": ("127.0.0.1", 1),
                    "scheme": "http",
                    "http_version": "1.1",
                    "server": ("localhost", 80),
                }
                sent: list[dict[str, object]] = []
                opened = asyncio.Event()

                async def send(message: dict[str, object]) -> None:
                    sent.append(message)
                    opened.set()

                async def receive() -> dict[str, object]:
                    await asyncio.Event().wait()
                    raise AssertionError

                streaming = asyncio.ensure_future(served.app(scope, receive, send))
                await asyncio.wait_for(opened.wait(), 10)
                await served.store.put(BOOK, Book("b000", "Seen", "lem"))
                await until(lambda: "event: put" in str(sent))
                session = next(iter((await served.studio.sessions.stored.page())[0]))
                assert await served.studio.sessions.stored.end(session.id)
                await served.store.put(BOOK, Book("b000", "Unseen", "lem"))
                await asyncio.wait_for(streaming, 10)
                assert str(sent).count("event: put") == 1
                assert sent[-1].get("more_body", False) is False

    asyncio.run(main())
