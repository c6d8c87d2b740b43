"""The search file of one space: an FTS5 table of folded words, and the revision it stands for.

Documents and revision change in one transaction, so the file is at every moment the index of some
revision of the space, or an older one: applying changes again is harmless. It holds words, not
texts, and is written with `synchronous=NORMAL`: after a power failure it may be at an earlier
revision, from which the changes are applied again.

A file is built beside its place (`.new`), synced, and renamed. Leftovers of a kill are deleted at
the next start. A file that is damaged, or of another declaration, is treated as missing.

It is used from threads: writes from one at a time, searches from one at a time. Other processes
open it `read_only`: they read the inode that they opened, until they look whether it is still in
place.
"""

import os
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from time import thread_time
from typing import Final, Self

import apsw
import msgspec

from keyhouse.search.folding import words

__all__ = ["Document", "SearchFile"]

_BETWEEN_TEXTS: Final = " \ue000 "
"""A word that no query has: a phrase does not match across two texts."""

_BUDGET_STEPS: Final = 1_000
"""Steps of SQLite's virtual machine between two looks at the clock: about 50 microseconds."""

_TABLES: Final = """
CREATE TABLE meta(name TEXT PRIMARY KEY, value) WITHOUT ROWID;
CREATE TABLE documents(
    id INTEGER PRIMARY KEY, key TEXT NOT NULL UNIQUE, source INTEGER NOT NULL,
    revision INTEGER NOT NULL, sort TEXT NOT NULL, expires INTEGER);
CREATE TABLE filters(
    name TEXT, value TEXT, id INTEGER, PRIMARY KEY (name, value, id)) WITHOUT ROWID;
CREATE INDEX filters_of ON filters(id);
"""


class Document(msgspec.Struct, gc=False):
    """The searched texts of one record. Without `texts` the record is not to be found; `is_gone`
    if it was deleted."""

    key: str
    revision: int
    source: int = 0
    texts: Mapping[str, str | Iterable[str] | None] | None = None
    filters: Mapping[str, Iterable[str]] = {}
    sort: str = ""
    expires: int | None = None
    is_gone: bool = False


class SearchFile:
    """Use `open` or `create`."""

    def __init__(
        self,
        path: Path,
        fields: Sequence[str],
        writer: apsw.Connection,
        *,
        read_only: bool = False,
    ) -> None:
        self.path = path
        self.read_only = read_only
        self._place = os.stat(path)
        self._fields = list(fields)
        self._writer = writer
        self._reader: apsw.Connection | None = None
        self.documents = 0
        """Number of documents, about: a failed transaction is not subtracted."""
        columns = ", ".join(f"text_{field}" for field in fields)
        marks = ", ".join("?" for _ in fields)
        self._insert_words = f"INSERT INTO words(rowid, {columns}) VALUES (?, {marks})"

    @classmethod
    def open(
        cls, path: Path, fields: Sequence[str], identity: str, *, read_only: bool = False
    ) -> Self | None:
        """Open a complete file; None if it is missing, damaged, not of this identity, or replaced
        meanwhile: a connection would read the WAL of the other file."""
        if not path.is_file():
            return None
        flags = apsw.SQLITE_OPEN_READONLY if read_only else apsw.SQLITE_OPEN_READWRITE
        try:
            place = os.stat(path)
            writer = apsw.Connection(str(path), flags=flags)
            try:
                writer.set_busy_timeout(1_000)
                if not read_only:
                    writer.execute("PRAGMA journal_mode=WAL")
                    writer.execute("PRAGMA synchronous=NORMAL")
                file = cls(path, fields, writer, read_only=read_only)
                if file._meta("identity") == identity and file.revision is not None:
                    file.documents = file._count()
                    if os.path.samestat(place, file._place) and file.is_in_place():
                        return file
            except BaseException:
                writer.close()
                raise
        except (apsw.Error, FileNotFoundError):
            return None
        writer.close()
        return None

    def is_in_place(self) -> bool:
        """Return whether the path still leads to this file."""
        try:
            return os.path.samestat(self._place, os.stat(self.path))
        except FileNotFoundError:
            return False

    @classmethod
    def create(cls, path: Path, fields: Sequence[str], identity: str) -> Self:
        """Create an empty file that only this user can read. Syncs nothing until `finish`."""
        remove_file(path)
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
        writer = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READWRITE)
        writer.execute("PRAGMA journal_mode=OFF")
        writer.execute("PRAGMA synchronous=OFF")
        columns = ", ".join(f"text_{field}" for field in fields)
        writer.execute(_TABLES)
        writer.execute(
            f"CREATE VIRTUAL TABLE words USING fts5({columns}, content='', contentless_delete=1,"
            " tokenize='ascii', prefix='1 2 3')"
        )
        file = cls(path, fields, writer)
        file._set_meta("identity", identity)
        return file

    def finish(self, revision: int) -> None:
        """Mark a created file as complete at this revision, sync and close it."""
        self._set_meta("revision", revision)
        self._writer.execute("INSERT INTO words(words) VALUES ('optimize')")
        self.close()
        _sync(self.path)

    def move_to(self, path: Path) -> None:
        """Rename a finished file to its place; the file there is removed, with its WAL."""
        remove_file(path)
        os.replace(self.path, path)
        _sync(path.parent)

    @property
    def revision(self) -> int | None:
        stored = self._meta("revision")
        return stored if isinstance(stored, int) else None

    def close(self) -> None:
        for connection in (self._reader, self._writer):
            if connection is not None:
                connection.close()
        self._reader = None

    # Writing

    def apply(self, documents: Iterable[Document], revision: int | None = None) -> None:
        """Replace these documents, and set the revision, in one transaction."""
        with self._writer:
            for document in documents:
                self._replace(document)
            if revision is not None:
                self._set_meta("revision", revision)

    def _replace(self, document: Document) -> None:
        execute = self._writer.execute
        for (id,) in execute("SELECT id FROM documents WHERE key = ?", (document.key,)).fetchall():
            execute("DELETE FROM words WHERE rowid = ?", (id,))
            execute("DELETE FROM filters WHERE id = ?", (id,))
            execute("DELETE FROM documents WHERE id = ?", (id,))
            self.documents -= 1
        if document.is_gone:
            return
        self.documents += 1
        execute(
            "INSERT INTO documents(key, source, revision, sort, expires) VALUES (?, ?, ?, ?, ?)",
            (
                document.key,
                document.source,
                document.revision,
                document.sort,
                document.expires,
            ),
        )
        if document.texts is None:
            return
        id = self._writer.last_insert_rowid()
        texts = [_searched(document.texts.get(field)) for field in self._fields]
        execute(self._insert_words, (id, *texts))
        for name, values in document.filters.items():
            for value in set(values):
                execute("INSERT INTO filters VALUES (?, ?, ?)", (name, value, id))

    # Searching

    def search(
        self,
        match: str | None,
        weights: Sequence[float],
        *,
        now: int,
        sources: Sequence[int],
        filters: Sequence[tuple[str, str]],
        limit: int,
        offset: int,
        count: bool,
        budget_seconds: float | None = None,
    ) -> tuple[list[tuple[int, str, float]], int | None]:
        """Return source, key and score of the best matches, and their number if `count`.

        Without `match`, all documents that pass the filters, by their sort text. Raises
        apsw.InterruptError if it takes longer than the budget.
        """
        reader = self._reading()
        if budget_seconds is None:
            reader.set_progress_handler(None)
        else:
            deadline = thread_time() + budget_seconds
            reader.set_progress_handler(lambda: thread_time() > deadline, _BUDGET_STEPS)
        tables = "documents" if match is None else "words JOIN documents ON id = words.rowid"
        conditions = ["(expires IS NULL OR expires > ?)"]
        bindings: list[str | int] = [now]
        if match is not None:
            conditions.insert(0, "words MATCH ?")
            bindings.insert(0, match)
        if sources:
            conditions.append(f"source IN ({', '.join(map(str, sources))})")
        for name, value in filters:
            conditions.append(
                "EXISTS (SELECT 1 FROM filters WHERE name = ? AND value = ? AND id = documents.id)"
            )
            bindings += [name, value]
        where = " AND ".join(conditions)
        score = "0" if match is None else f"-bm25(words, {', '.join(map(repr, weights))})"
        hits = reader.execute(
            f"SELECT source, key, {score} AS score FROM {tables} WHERE {where}"
            " ORDER BY score DESC, sort, key LIMIT ? OFFSET ?",
            (*bindings, limit, offset),
        ).fetchall()
        total = None
        if count:
            short = len(hits) < limit and (hits or not offset)
            total = offset + len(hits) if short else self._total(tables, where, bindings)
        return [(int(s), str(k), float(v)) for s, k, v in hits], total  # type: ignore[arg-type]

    def _count(self) -> int:
        row = self._writer.execute("SELECT count(*) FROM documents").fetchone()
        return int(row[0]) if row else 0

    def sample(self, count: int) -> list[str]:
        """Return the keys of some documents."""
        rows = self._writer.execute("SELECT key FROM documents ORDER BY random() LIMIT ?", (count,))
        return [str(key) for (key,) in rows]

    def revisions(self, keys: Iterable[str]) -> list[int | None]:
        """Return the revision that the file has of each record; None if it has none."""
        sql = "SELECT revision FROM documents WHERE key = ?"
        rows = [self._writer.execute(sql, (key,)).fetchone() for key in keys]
        return [None if row is None else int(row[0]) for row in rows]

    def _total(self, tables: str, where: str, bindings: Sequence[str | int]) -> int:
        sql = f"SELECT count(*) FROM {tables} WHERE {where}"
        row = self._reading().execute(sql, bindings).fetchone()
        return int(row[0]) if row else 0

    def _reading(self) -> apsw.Connection:
        if self._reader is None:
            self._reader = apsw.Connection(str(self.path), flags=apsw.SQLITE_OPEN_READONLY)
            self._reader.set_busy_timeout(1_000)
        return self._reader

    def _meta(self, name: str) -> object:
        row = self._writer.execute("SELECT value FROM meta WHERE name = ?", (name,)).fetchone()
        return None if row is None else row[0]

    def _set_meta(self, name: str, value: str | int) -> None:
        self._writer.execute("INSERT OR REPLACE INTO meta VALUES (?, ?)", (name, value))


def remove_file(path: Path) -> None:
    """Remove a file and what SQLite keeps beside it."""
    for suffix in ("", "-wal", "-shm", "-journal"):
        with suppress(FileNotFoundError):
            os.remove(f"{path}{suffix}")


def _searched(text: str | Iterable[str] | None) -> str:
    if text is None:
        return ""
    if isinstance(text, str):
        return " ".join(words(text))
    return _BETWEEN_TEXTS.join(" ".join(words(each)) for each in text)


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
