"""What a command works on: engines, opened by URL, closed whatever happens; and files."""

import os
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import BinaryIO, cast

from keyhouse import open_engine
from keyhouse.engine import Engine
from keyhouse.errors import UsageError

URL_HELP = "An engine: sqlite:data.db, rocksdb:folder, …"


@asynccontextmanager
async def opened(url: str, *, existing: bool = False) -> AsyncIterator[Engine]:
    """`existing`: what is only read is not made when it is not there."""
    engine = await open_engine(url, create=not existing)
    try:
        yield engine
    finally:
        await engine.close()


@contextmanager
def opened_file(path: Path, mode: str) -> Iterator[BinaryIO]:
    """`xb`: a new one, which only its owner can read, as it is with what it was copied from; `rb`, `r+b`: one that is there.
    What was written is on disk when it is closed."""
    try:
        file = cast(BinaryIO, open(path, mode, opener=_of_its_owner))  # noqa: SIM115  # closed below
    except FileExistsError:
        raise UsageError("The file is there already: name another one, or go on with it.", file=str(path)) from None
    except OSError as error:
        raise UsageError("The file can't be opened.", file=str(path), reason=error.strerror) from None
    with file:
        yield file
        if file.writable():
            file.flush()
            os.fsync(file.fileno())


def _of_its_owner(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)
