"""Covers: pictures from tags and folders, as files of one folder, named by their hash. Books with
the same picture share its file, which is removed with the last of them.

The folder is one of the data folder, or that of the setting `covers`: services on several machines
share it as they share the roots. A file and its row are written, and a file without a row is
removed, by the process that holds the lock of the folder.
"""

import asyncio
import hashlib
import os
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager, suppress
from itertools import product
from pathlib import Path
from typing import Final

from msgspec.structs import replace

from keyhouse.errors import NotFoundError
from keyhouse.file_lock import FileLock
from keyhouse.http import FileResponse, FileRoot
from keyhouse.store import Transaction
from keyhouse_audiobooks.files.audio_files import COVER_NAMES, open_regular
from keyhouse_audiobooks.files.audio_tags import AudioTags, image_type
from keyhouse_audiobooks.library import Library
from keyhouse_audiobooks.records import Asset
from keyhouse_audiobooks.schema import ASSET, ASSETS_BY_HASH, ASSETS_OF_BOOK, BOOK

__all__ = ["Covers"]

COVER_BYTES_MAX: Final = 20 * 1_024 * 1_024

LOCK_FILE: Final = ".lock"
LOCK_SECONDS: Final = 0.02
"""Interval at which a process asks for the lock: another one has it while it writes one file."""


class Covers:
    def __init__(self, library: Library, folder: Path) -> None:
        self._library = library
        self._store = library.store
        self._run = library.run
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._root = FileRoot(folder, run=library.run)
        self._one_at_a_time = asyncio.Lock()
        self._lock = FileLock(folder / LOCK_FILE)

    async def add(self, book_id: str, folders: Sequence[Path], tags: Iterable[AudioTags]) -> None:
        """Give a book that has no cover the first picture of its tags, or of its folders."""
        found = next(((each.cover, each.cover_type) for each in tags if each.cover_type), None)
        if found is None:
            found = await self._run(_folder_cover, folders, self._library.roots)
        if found is None:
            return
        async with self._alone():
            await self._write(book_id, *found)

    async def _write(self, book_id: str, content: bytes, mime: str) -> None:
        asset = await self._run(self._stored, content, mime)
        asset.book_id = book_id

        async def work(tx: Transaction) -> None:
            current = await tx.get(BOOK, id=book_id)
            if current is not None and current.cover_asset_id is None:
                await tx.put(ASSET, asset)
                await tx.put(BOOK, replace(current, cover_asset_id=asset.id))

        await self._store.transact(work)

    async def get(self, book_id: str) -> FileResponse:
        book = await self._store.get(BOOK, id=book_id)
        asset = None
        if book is not None and book.cover_asset_id is not None:
            asset = await self._store.get(ASSET, id=book.cover_asset_id)
        if asset is None:
            raise NotFoundError("The book has no cover.", id=book_id)
        return FileResponse(
            self._root, asset.path, media_type=asset.mime, etag=f'"{asset.hash_sha256}"'
        )

    async def hashes_of(self, book_id: str) -> list[str]:
        """Return the hashes of the assets of a book."""
        found = self._store.scan(ASSET, by=ASSETS_OF_BOOK, book_id=book_id)
        return [entry.record.hash_sha256 async for entry in found]

    async def remove_unused(self, hashes: Iterable[str] | None = None) -> int:
        """Remove the files, of these hashes or of all, that no asset refers to; return how many."""
        paths: list[Path] = await self._run(lambda: sorted(self._root.path.iterdir()))
        wanted = None if hashes is None else set(hashes)
        removed = 0
        for path in paths:
            if path.name != LOCK_FILE and (wanted is None or path.stem in wanted):
                async with self._alone():
                    if not await self._is_used(path.stem):
                        await self._run(lambda path=path: path.unlink(missing_ok=True))
                        removed += 1
        return removed

    @asynccontextmanager
    async def _alone(self) -> AsyncIterator[None]:
        """Hold the lock of the folder."""
        async with self._one_at_a_time:
            while not await self._run(self._lock.acquire):
                await asyncio.sleep(LOCK_SECONDS)
            try:
                yield
            finally:
                self._lock.release(delete=True)

    async def _is_used(self, hashed: str) -> bool:
        async for _ in self._store.scan(ASSET, by=ASSETS_BY_HASH, hash_sha256=hashed):
            return True
        return False

    def _stored(self, content: bytes, mime: str) -> Asset:
        hashed = hashlib.sha256(content).hexdigest()
        name = f"{hashed}.{mime.removeprefix('image/')}"
        path = self._root.path / name
        if not path.exists():
            draft = path.with_suffix(f".{self._library.new_id()}.tmp")
            draft.write_bytes(content)
            draft.replace(path)
        return Asset(
            id=self._library.new_id(),
            path=name,
            mime=mime,
            size_bytes=len(content),
            hash_sha256=hashed,
        )


def _folder_cover(folders: Sequence[Path], roots: Sequence[Path]) -> tuple[bytes, str] | None:
    for folder, name in product(folders, COVER_NAMES):
        path = f"{folder}{os.sep}{name}"
        if not os.path.lexists(path):
            continue
        with suppress(OSError), open_regular(path, roots) as file:  # an unreadable one is left out
            content = file.read(COVER_BYTES_MAX + 1)
            if len(content) <= COVER_BYTES_MAX and (mime := image_type(content)):
                return content, mime
    return None
