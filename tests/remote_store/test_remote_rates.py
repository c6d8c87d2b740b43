"""Long reads of a remote store beyond the rate of its space: they wait, as the service asks for."""

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from keyhouse import Record, RemoteStore, Schema, Space
from keyhouse.errors import RateError
from keyhouse.remote_store import record_reads
from keyhouse.service.schema_service import remote as schema_remote
from keyhouse.service.schema_service.remote import SchemaRemotes
from tests.service.schema_service.support.served import Served
from tests.support.engine_openers import memory

NOTE = Record(str, "note:{number:04d}", name="note")
NOTES = Schema("notes", NOTE, space=Space("a person"))
COUNT = 1_900


def test_a_long_read_waits_for_the_rate_of_its_space(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    waited: list[float] = []

    async def main(served: Served) -> None:
        async def wait(seconds: float) -> None:
            waited.append(seconds)
            served.clock.advance(seconds=seconds)

        monkeypatch.setattr(record_reads, "asyncio", SimpleNamespace(sleep=wait))
        namespace = SimpleNamespace(sleep=wait, to_thread=asyncio.to_thread)
        monkeypatch.setattr(schema_remote, "asyncio", namespace)
        rows = await SchemaRemotes(NOTES).connect(served.url, "ann", served.token("ann"))
        async with RemoteStore(NOTES, served.url, served.token("ann")) as store:
            for start in range(0, COUNT, 400):
                served.clock.advance(seconds=100)

                async def put(tx: Any, start: int = start) -> None:
                    for number in range(start, min(COUNT, start + 400)):
                        await tx.put(NOTE, "x", number=number)

                await store.transact(put)
            addresses = [{"number": number} for number in range(COUNT)]
            for read in (
                lambda: _listed(store),
                lambda: store.get_many(NOTE, addresses),
                lambda: store.count(NOTE),
                lambda: rows.count("note:"),
            ):
                served.clock.advance(seconds=100)
                waited.clear()
                assert await read() in (["x"] * COUNT, COUNT)
                assert waited and all(seconds >= 1 for seconds in waited)
            await rows.close()
            with pytest.raises(RateError):  # one page is a request like others
                while True:
                    await store.page(NOTE, limit=500)

    with Served(memory(tmp_path), tmp_path, NOTES, rate_per_second=5, rate_burst=10) as served:
        asyncio.run(main(served))


async def _listed(store: RemoteStore) -> list[str]:
    return [entry.record async for entry in store.scan(NOTE)]
