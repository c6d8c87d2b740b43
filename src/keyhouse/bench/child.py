"""A process to be measured: it says in one line that it is ready, and ends with its standard input. Ctrl-C does not reach
it: who started it ends it. What it logs is shown only if it does not become ready."""

import asyncio
import sys
from asyncio.subprocess import PIPE
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import NamedTuple

from keyhouse.errors import UnavailableError


class Child(NamedTuple):
    process: int
    line: str


@asynccontextmanager
async def child(module: str, *arguments: str, log: Path) -> AsyncIterator[Child]:
    """`python -m MODULE ARGUMENTS`, for as long as the block takes."""
    with log.open("wb") as errors:
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            module,
            *arguments,
            stdin=PIPE,
            stdout=PIPE,
            stderr=errors,
            start_new_session=True,
        )
    assert process.stdin is not None and process.stdout is not None
    try:
        line = (await process.stdout.readline()).decode().strip()
        if not line:
            raise UnavailableError(
                "What is to be measured did not start.", log=log.read_text()[-2_000:]
            )
        yield Child(process.pid, line)
    finally:
        process.stdin.close()
        await process.wait()
