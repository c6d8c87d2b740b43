"""The Studio on each engine: browse, preview, save, conflict, undo, bulk delete, verify, repair."""

import asyncio
from pathlib import Path

import pytest

from keyhouse.clock import SystemClock
from keyhouse.engine import Batch, Put
from keyhouse.store import verify
from tests.studio.support.jobs import ended, running_jobs
from tests.studio.support.library import BOOK, Book, Library, fill, library, send
from tests.support.engine_openers import OPENERS

MAIN = "/studio/library/main"
KEY = {"k": "book:b000", "mode": "text"}


@pytest.mark.parametrize("name", OPENERS)
def test_records_are_browsed_changed_and_repaired_on_every_engine(
    name: str, tmp_path: Path
) -> None:
    async def main() -> None:
        engine = await OPENERS[name](tmp_path)(SystemClock())
        try:
            async with library(tmp_path, engine) as served, running_jobs(served):
                await fill(served.store, books=6)
                await edit_and_undo(served)
                await delete_and_undo(served)
                await repair(served)
                assert [each async for each in verify(served.store)] == []
        finally:
            await engine.close()

    asyncio.run(main())


async def edit_and_undo(served: Library) -> None:
    before = {row.key: row.value async for row in served.store.row_scan()}
    async with served.signed_in(unlocked=True) as client:
        for path in ("", "tree?at=by-author:", "book?q=author%3Dlem", "key?k=book:b000", "verify"):
            assert (await client.get(f"{MAIN}/{path}")).status_code == 200, path
        page = (await client.get(f"{MAIN}/edit.json", params=KEY)).json()
        text = page["text"].replace('"lem"', '"asimov"')
        form = KEY | {"revision": page["revision"], "text": text}
        preview = await send(client, f"{MAIN}/edit", form | {"action": "preview"})
        for line in ("put by-author:asimov:b000", "delete by-author:lem:b000"):
            assert f">{line}</h3>" in preview.text
        assert {row.key: row.value async for row in served.store.row_scan()} == before
        assert (await send(client, f"{MAIN}/edit", form | {"action": "save"})).status_code == 303
        again = await send(client, f"{MAIN}/edit", form | {"action": "save"})
        assert again.status_code in (409, 412), "the revision has changed"
        assert await served.store.row("by-author:asimov:b000") is not None
        line = (await client.get("/studio/journal.json")).json()["lines"][0]
        undone = await client.post("/studio/journal", data={"id": line["id"]})
        assert undone.status_code == 303
        assert {row.key: row.value async for row in served.store.row_scan()} == before


async def delete_and_undo(served: Library) -> None:
    async with served.signed_in(unlocked=True) as client:
        form = {"record": "book", "q": "author=lem", "count": "3"}
        done = await ended(client, await send(client, f"{MAIN}/bulk", form))
        assert await served.store.count(BOOK) == 3
        form = {"id": done["job"]["id"], "action": "undo"}
        await ended(client, await send(client, "/studio/job", form))
        assert await served.store.count(BOOK) == 6


async def repair(served: Library) -> None:
    broken = Batch(puts=(Put("by-author:nobody:b9", b"1"),), deletes=("by-author:lem:b000",))
    await served.engine.commit("main", broken)
    async with served.signed_in(unlocked=True) as client:
        for action, repaired in (("verify", 0), ("repair", 2)):
            done = await ended(client, await client.post(f"{MAIN}/verify", data={"action": action}))
            assert f"2 findings, {repaired} repaired" in done["lines"][-1]["message"]
    await served.store.put(BOOK, Book("b000", "Title 0", "lem"))
