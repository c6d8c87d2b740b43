"""Reading audio files in separate processes, never in the service: a file may take any amount of
memory and time, and a scan of many files must not delay requests.

A process reads one file after the other. If it ends, or takes too long, the file that it was
reading is broken, and a new process reads the next one. Results are passed on in parts of about
`PART_BYTES`, so that the service never holds many covers.
"""

import asyncio
import contextlib
import os
import signal
from collections.abc import AsyncGenerator, Iterable, Sequence
from contextlib import aclosing
from pathlib import Path
from typing import Final

import msgspec

from keyhouse.errors import UnavailableError
from keyhouse_audiobooks.files.audio_files import AudioFile, FoundFile
from keyhouse_audiobooks.files.reader_process import LENGTH, command

__all__ = ["read_files", "read_one"]

FILES_MIN: Final = 256
"""Fewer files are read by one process."""

READERS_MAX: Final = 4
PART_BYTES: Final = 8 * 1_024 * 1_024
"""Bytes of replies, mostly covers, after which the files read so far are passed on."""
REPLY_BYTES_MAX: Final = 32 * 1_024 * 1_024
"""More than the reply of a file can have: its cover, and its chapters."""
FILE_SECONDS_MAX: Final = 60.0
"""Time for the tags of a file, beside the time to read all of it."""
_BYTES_PER_SECOND: Final = 1_024 * 1_024
"""A slow network disk delivers more than this."""
_START_SECONDS_MAX: Final = 60.0
_TOO_LONG: Final = "takes too long to read"
_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(AudioFile).decode


async def read_files(
    chunks: Iterable[list[FoundFile]], count: int, roots: Sequence[Path]
) -> AsyncGenerator[list[AudioFile], None]:
    """Iterate over files that were read, some of a chunk at a time, in any order of chunks; the
    next ones are read meanwhile.

    `count` is the number of all files. Raises UnavailableError if no process can be started.
    """
    many = min(READERS_MAX, os.cpu_count() or 1) if count >= FILES_MIN else 1
    left = iter(chunks)
    results: asyncio.Queue[list[AudioFile] | Exception | None] = asyncio.Queue(1)

    async def work() -> None:
        async with aclosing(_Reader(roots)) as reader:
            for chunk in left:
                async with aclosing(reader.read(chunk)) as parts:
                    async for part in parts:
                        await results.put(part)

    async def work_all() -> None:
        failure = None
        try:
            async with asyncio.TaskGroup() as group:
                for _ in range(many):
                    group.create_task(work())
        except ExceptionGroup as errors:
            failure = errors.exceptions[0]
        await results.put(failure)

    working = asyncio.create_task(work_all())
    try:
        while (part := await results.get()) is not None:
            if isinstance(part, Exception):
                raise part
            yield part
    finally:
        working.cancel()
        await asyncio.gather(working, return_exceptions=True)


async def read_one(found: FoundFile, roots: Sequence[Path]) -> AudioFile:
    """Return one file, read in a separate process."""
    async with (
        aclosing(_Reader(roots)) as reader,
        aclosing(reader.read([found])) as parts,
    ):
        [file] = await anext(parts)
        return file


class _Reader:
    """One process, started when it is first needed, and again after it has ended."""

    def __init__(self, roots: Sequence[Path]) -> None:
        self._roots = roots
        self._process: asyncio.subprocess.Process | None = None

    async def read(self, chunk: list[FoundFile]) -> AsyncGenerator[list[AudioFile], None]:
        """Iterate over the files of a chunk in their order, in parts."""
        part: list[AudioFile] = []
        part_bytes = 0
        for number, found in enumerate(chunk):
            is_new = self._process is None
            process = self._process = self._process or await _start(self._roots)
            rest = chunk[number:] if is_new or not number else []
            file, size = await self._next(process, rest, found)
            part.append(file)
            part_bytes += size
            if part_bytes >= PART_BYTES:
                yield part
                part, part_bytes = [], 0
        if part:
            yield part

    async def _next(
        self, process: asyncio.subprocess.Process, rest: list[FoundFile], found: FoundFile
    ) -> tuple[AudioFile, int]:
        """Send the rest of a chunk if the process does not have it yet; return the file that it
        read next, and the bytes of its reply."""
        try:
            async with asyncio.timeout(FILE_SECONDS_MAX + found.size / _BYTES_PER_SECOND):
                if rest:
                    await _send(process, _encode(rest))
                frame = await _receive(process)
                return _decode(frame), len(frame)
        except TimeoutError:
            reason = _TOO_LONG
            await self.aclose()
        except (OSError, EOFError, msgspec.DecodeError):
            status = await self.aclose()
            is_late = status == -signal.SIGXCPU
            reason = _TOO_LONG if is_late else f"the process that read it ended ({status})"
        return AudioFile(found=found, error=reason), 0

    async def aclose(self) -> int | None:
        """End the process; return its exit status."""
        process, self._process = self._process, None
        return None if process is None else await _end(process)


async def _start(roots: Sequence[Path]) -> asyncio.subprocess.Process:
    """Return a process that is ready. Raises UnavailableError."""
    try:
        process = await asyncio.create_subprocess_exec(
            *command(roots),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
        )
    except OSError as error:
        raise _not_started(str(error)) from None
    try:
        async with asyncio.timeout(_START_SECONDS_MAX):
            await _receive(process)
    except BaseException as error:
        status = await _end(process)
        if isinstance(error, OSError | EOFError):
            raise _not_started(f"exit status {status}") from None
        raise
    return process


async def _send(process: asyncio.subprocess.Process, frame: bytes) -> None:
    assert process.stdin is not None
    process.stdin.write(LENGTH.pack(len(frame)) + frame)
    await process.stdin.drain()


async def _receive(process: asyncio.subprocess.Process) -> bytes:
    """Raises EOFError if the process has ended, or sends more than a reply has."""
    assert process.stdout is not None
    (size,) = LENGTH.unpack(await process.stdout.readexactly(LENGTH.size))
    if size > REPLY_BYTES_MAX:
        raise EOFError
    return await process.stdout.readexactly(size)


async def _end(process: asyncio.subprocess.Process) -> int:
    with contextlib.suppress(ProcessLookupError):
        if process.returncode is None and process.stdout is not None:
            if process.stdout.at_eof():  # it has ended by itself: its own status
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(1):
                        return await process.wait()
            process.kill()
    return await process.wait()


def _not_started(reason: str) -> UnavailableError:
    return UnavailableError(
        "The process that reads audio files does not start: see the reason.", reason=reason
    )
