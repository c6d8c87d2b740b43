"""The LangGraph checkpointer: the project's own conformance suite, and states of any size."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

from langgraph.checkpoint.base import empty_checkpoint
from langgraph.checkpoint.conformance import checkpointer_test, validate

from keyhouse import Store, open_engine
from keyhouse.adapters.langgraph_checkpoints import CHECKPOINTS, KeyhouseSaver

BASE = {"put", "put_writes", "get_tuple", "list", "delete_thread"}


def test_the_saver_passes_the_projects_conformance_suite() -> None:
    @checkpointer_test(name="keyhouse")  # type: ignore[untyped-decorator]
    async def saver() -> AsyncIterator[KeyhouseSaver]:
        async with open_engine("memory:") as engine:
            yield KeyhouseSaver(Store(CHECKPOINTS, engine, "main"))

    report = asyncio.run(validate(saver, capabilities=BASE))
    failures = [failure for result in report.results.values() for failure in result.failures]
    assert failures == []
    assert report.passed_all_base()
    assert sum(result.tests_passed for result in report.results.values()) >= 50


def test_a_state_larger_than_a_value_is_stored_in_parts() -> None:
    async def main() -> None:
        async with open_engine("memory:") as engine:
            saver = KeyhouseSaver(Store(CHECKPOINTS, engine, "main"))
            checkpoint = {**empty_checkpoint(), "channel_values": {"text": "x" * 1_000_000}}
            place: Any = {"configurable": {"thread_id": "t" * 300, "checkpoint_ns": ""}}
            stored = await saver.aput(place, checkpoint, {}, {})  # type: ignore[arg-type]
            await saver.aput_writes(stored, [("text", "y" * 1_000_000)], "task")
            found = await saver.aget_tuple(stored)
            assert found is not None
            assert found.pending_writes == [("task", "text", "y" * 1_000_000)]
            assert found.checkpoint["channel_values"] == {"text": "x" * 1_000_000}
            await saver.adelete_thread("t" * 300)
            assert await saver.aget_tuple(stored) is None
            assert [row async for row in saver.store.row_scan()] == []

    asyncio.run(main())
