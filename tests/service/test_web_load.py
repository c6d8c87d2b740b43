"""A thousand event streams, 64 listeners and logins at once leave other requests fast."""

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from tests.http.support.real_server import run
from tests.sizes import SOAK, size

STREAMS, LISTENERS, PINGS = size(100, 1_000, 1_000), size(16, 64, 64), size(200, 800, 800)
FLOOR_SECONDS = 0.003
"""Below this a 99th percentile is fast enough: it is less than a time slice of the scheduler, which
decides when a process runs whose core is in use. Only a soak has the cores for itself: other runs
test that all requests are answered, and the memory."""

DELIVERY_SECONDS_MAX = 0.25
STREAM_BYTES_MAX = 50 * 1_024


class Program:
    """A process that reads and prints lines."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process

    @classmethod
    @asynccontextmanager
    async def running(cls, module: str, *arguments: object) -> AsyncIterator["Program"]:
        command = (sys.executable, "-m", f"tests.service.support.{module}", *map(str, arguments))
        process = await asyncio.create_subprocess_exec(*command, stdin=-1, stdout=-1)
        assert process.stdin is not None
        try:
            yield cls(process)
        finally:
            process.stdin.close()
            if process.returncode is None:
                process.kill()
            await process.wait()

    async def line(self) -> str:
        assert self._process.stdout is not None
        line = await self._process.stdout.readline()
        assert line, "the program has ended"
        return line.decode()

    async def ask(self) -> str:
        """Send a line; return the next one that the program prints."""
        assert self._process.stdin is not None
        self._process.stdin.write(b"\n")
        return await self.line()

    def resident_bytes(self) -> int:
        pages = Path(f"/proc/{self._process.pid}/statm").read_text().split()[1]
        return int(pages) * 4_096


async def percentile_99(port: int) -> float:
    """Return the 99th percentile of requests, measured by another process."""
    async with Program.running("pings", port, PINGS) as pings:
        return float(await pings.line())


@pytest.mark.long
@pytest.mark.soak
@pytest.mark.skipif(sys.platform != "linux", reason="reads the memory from /proc")
def test_streams_listeners_and_logins_at_once_leave_other_requests_fast(tmp_path: Path) -> None:
    (tmp_path / "audio").write_bytes(bytes(2**20) * 8)

    async def scenario() -> None:
        async with Program.running("loaded_service", tmp_path) as server:
            port = int(await server.line())
            calm = await percentile_99(port)
            before = server.resident_bytes()
            async with Program.running("listening_clients", port, STREAMS, LISTENERS) as clients:
                assert await clients.line() == "connected\n"
                stream_bytes = (server.resident_bytes() - before) / STREAMS
                assert await clients.ask() == "loading\n"
                busy = await percentile_99(port)
                for _ in range(2):  # another process may have taken a core meanwhile
                    if SOAK and busy > max(3 * calm, FLOOR_SECONDS):
                        busy = min(busy, await percentile_99(port))
                last = sorted(json.loads(await clients.ask()))
        print(
            f"p99 calm {calm * 1e3:.1f} ms, busy {busy * 1e3:.1f} ms; last delivery: median"
            f" {last[len(last) // 2] * 1e3:.0f} ms; {stream_bytes / 1_024:.1f} KiB a stream"
        )
        if SOAK:
            assert busy <= max(3 * calm, FLOOR_SECONDS)
            assert last[len(last) // 2] <= DELIVERY_SECONDS_MAX
        assert stream_bytes <= STREAM_BYTES_MAX

    run(scenario)
