"""Reading audio files in separate processes: a scan of many files neither delays requests nor waits
for one CPU.

A reader gets lists of files on its standard input, and returns what it read of them on its standard
output: frames of MessagePack, each behind its length in four bytes. It ends with its input. Where
no process can be started, or one ends early, a thread reads the files.
"""

import asyncio
import contextlib
import os
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable
from typing import Any, Final

import msgspec
import structlog

from keyhouse.systems.audiobooks.files import AudioFile, FoundFile
from keyhouse.systems.audiobooks.reader_process import LENGTH, command, read_all

__all__ = ["read_files"]

FILES_MIN: Final = 256
"""Fewer files are read in a thread: a process takes longer to start."""

READERS_MAX: Final = 4
_encode = msgspec.msgpack.Encoder().encode
_decode_read = msgspec.msgpack.Decoder(list[AudioFile]).decode
_log = structlog.get_logger("keyhouse.audiobooks")

Run = Callable[..., Awaitable[Any]]


async def read_files(
    chunks: Iterable[list[FoundFile]], count: int, run: Run
) -> AsyncGenerator[list[AudioFile], None]:
    """Iterate over files that were read, a chunk at a time, in any order; the next ones are read
    meanwhile.

    `count` is the number of all files, and `run` calls a function in a thread.
    """
    many = min(READERS_MAX, max(1, (os.cpu_count() or 1) - 1)) if count >= FILES_MIN else 0
    readers = [_Reader(run, has_process=True) for _ in range(many)]
    left = iter(chunks)
    results: asyncio.Queue[list[AudioFile] | None] = asyncio.Queue(many + 1)

    async def work(reader: _Reader) -> None:
        # The thread reads while the processes start.
        while reader.has_process or not any(each.is_ready for each in readers):
            chunk = next(left, None)
            if chunk is None:
                return
            await results.put(await reader.read(chunk))

    async def work_all() -> None:
        try:
            async with asyncio.TaskGroup() as group:
                for reader in [*readers, _Reader(run, has_process=False)]:
                    group.create_task(work(reader))
            for chunk in left:  # a process has ended, and the thread had left the rest to it
                await results.put(await _Reader(run, has_process=False).read(chunk))
        finally:
            await results.put(None)

    working = asyncio.create_task(work_all())
    try:
        while (read := await results.get()) is not None:
            yield read
        await working
    finally:
        working.cancel()
        await asyncio.gather(working, return_exceptions=True)
        for reader in readers:
            await reader.close()


class _Reader:
    """One process, started when it is first needed."""

    def __init__(self, run: Run, *, has_process: bool) -> None:
        self._run = run
        self.has_process = has_process
        self.is_ready = False
        self._process: asyncio.subprocess.Process | None = None

    async def read(self, chunk: list[FoundFile]) -> list[AudioFile]:
        if self.has_process:
            try:
                found = await self._exchange(chunk)
                self.is_ready = True
                return found
            except (OSError, EOFError, msgspec.DecodeError) as error:
                _log.warning("audio files are read in a thread", reason=repr(error))
                self.has_process = self.is_ready = False
                await self.close()
        read: list[AudioFile] = await self._run(read_all, chunk)
        return read

    async def _exchange(self, chunk: list[FoundFile]) -> list[AudioFile]:
        process = self._process or await self._start()
        assert process.stdin is not None and process.stdout is not None
        sent = _encode(chunk)
        process.stdin.write(LENGTH.pack(len(sent)) + sent)
        await process.stdin.drain()
        (size,) = LENGTH.unpack(await process.stdout.readexactly(LENGTH.size))
        found = _decode_read(await process.stdout.readexactly(size))
        if len(found) != len(chunk):
            raise EOFError("The reader did not return all files.")
        return found

    async def _start(self) -> asyncio.subprocess.Process:
        self._process = await asyncio.create_subprocess_exec(
            *command(),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
        )
        return self._process

    async def close(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()
