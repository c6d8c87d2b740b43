"""A board of clips in a SQLite file, for the data commands."""

import asyncio
import json
from pathlib import Path
from typing import Any

from keyhouse import open_engine
from keyhouse.engine import Row, Span

BOARD = "keyhouse.demo.clips:BOARD"
GOAL = '{"title": "What a goal!", "second": 754, "viewer": "Ada", "tags": ["Goal", "replay"]}'
STORE = ("--store", "sqlite:clips.db", "--space", "channel-7")


def lines(text: str) -> list[Any]:
    return [json.loads(line) for line in text.splitlines()]


def everything(folder: Path) -> list[Row]:
    async def read() -> list[Row]:
        engine = await open_engine(f"sqlite:{folder / 'clips.db'}")
        page = await engine.scan("channel-7", Span(), limit=1_000)
        await engine.close()
        return page.rows

    return asyncio.run(read())
