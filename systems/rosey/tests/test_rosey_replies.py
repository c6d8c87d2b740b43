"""Replies of limited size: pages are cut where they would not fit."""

import asyncio
import json

import pytest

from keyhouse.engines.memory import MemoryEngine
from keyhouse.errors import LimitError
from keyhouse.service.usage import Quota
from keyhouse_rosey import messages
from keyhouse_rosey.operations import Plugin


def test_a_page_into_which_nothing_fits_is_rejected() -> None:
    """It was empty and had a cursor: a client that reads all pages requested it forever."""

    async def run() -> None:
        plugin = Plugin("trivia", MemoryEngine(), Quota(), 1_000)
        await plugin.set(messages.Set("a", "x" * 400))
        await plugin.set(messages.Set("k" * 255, "x" * 500))
        first = json.loads(await plugin.scan(messages.ScanRequest()))
        assert first["count"] == 1 and first["truncated"]
        with pytest.raises(LimitError, match="reply_bytes_max"):
            await plugin.scan(messages.ScanRequest(cursor=first["cursor"]))
        assert json.loads(await plugin.list(messages.List()))["count"] == 2
        with pytest.raises(LimitError, match="reply_bytes_max"):
            await Plugin("trivia", plugin.store.engine, Quota(), 600).list(
                messages.List(prefix="k")
            )

    asyncio.run(run())
