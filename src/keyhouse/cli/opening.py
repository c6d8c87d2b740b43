"""What a command works on: engines, opened by URL, closed whatever happens; and files."""

import os
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path
from typing import BinaryIO, cast

from keyhouse import open_engine
from keyhouse.engine import Engine
from keyhouse.errors import UsageError

Rehearsal = Callable[[], Awaitable[object]]
"""The work on a store without rows, which writes nowhere: it raises what such a store would refuse."""


@asynccontextmanager
async def opened(
    url: str, *, existing: bool = False, rehearse: Rehearsal | None = None
) -> AsyncIterator[Engine]:
    """`existing`: what is only read is not made when it is not there. `rehearse`: one that is not there is made only when
    this was not refused, so that a refusal leaves nothing behind."""
    engine = await _engine(url, existing, rehearse)
    try:
        yield engine
    finally:
        await engine.close()


async def _engine(url: str, existing: bool, rehearse: Rehearsal | None) -> Engine:
    if rehearse is not None:
        with suppress(
            UsageError
        ):  # it is not there, or can't be opened at all, which is said below
            return await open_engine(url, create=False)
        await rehearse()
    return await open_engine(url, create=not existing)


@contextmanager
def opened_file(path: Path, mode: str) -> Iterator[BinaryIO]:
    """`xb`: a new one, which only its owner can read, as it is with what it was copied from; `rb`, `r+b`: one that is there.
    What was written is on disk when it is closed."""
    try:
        file = cast(BinaryIO, open(path, mode, opener=_of_its_owner))  # noqa: SIM115  # closed below
    except FileExistsError:
        raise UsageError(
            "The file is there already: name another one, or go on with it.", file=str(path)
        ) from None
    except OSError as error:
        raise UsageError(
            "The file can't be opened: look at its name, its folder, and who may use it.",
            file=str(path),
            reason=error.strerror,
        ) from None
    with file:
        yield file
        if file.writable():
            file.flush()
            os.fsync(file.fileno())


def _of_its_owner(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)
