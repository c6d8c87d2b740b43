"""A measured child process: it prints one line when it is ready, and exits when its stdin closes.

It runs in its own session, so Ctrl-C reaches only the parent. Its log is shown only if it fails to
start.
"""

import asyncio
import os
import sys
from asyncio.subprocess import PIPE
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import NamedTuple

from keyhouse.errors import UnavailableError


class Child(NamedTuple):
    pid: int
    line: str

    def cpu_seconds(self) -> float:
        """Return the CPU time used so far; 0 where the system does not report it."""
        try:
            fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            return 0.0
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@asynccontextmanager
async def child(module: str, *arguments: str, log: Path) -> AsyncIterator[Child]:
    """Run `python -m MODULE ARGUMENTS` while the block runs."""
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
                "The measured process did not start.", log=log.read_text()[-2_000:]
            )
        yield Child(process.pid, line)
    finally:
        process.stdin.close()
        await process.wait()
