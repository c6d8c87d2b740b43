"""Routes of `audiobooks`, alias `books`."""

from collections.abc import Mapping
from typing import Any

from keyhouse.errors import (
    ConflictError,
    KeyhouseError,
    NotFoundError,
    RecordError,
    RevisionError,
)
from keyhouse.http import Conditions, Response, Route
from keyhouse.store import Entry
from keyhouse.systems.audiobooks import messages
from keyhouse.systems.audiobooks.books import Books
from keyhouse.systems.audiobooks.library import Data, Items, data, offset_cursor, page_limit
from keyhouse.systems.audiobooks.messages import Id
from keyhouse.systems.audiobooks.permissions import DELETE, EDIT, VIEW
from keyhouse.systems.audiobooks.records import Book
from keyhouse.systems.audiobooks.routes.table import add_root, api, revision_check, tagged
from keyhouse.systems.audiobooks.search import LibrarySearch

__all__ = ["book_routes"]

Json = dict[str, Any]


class BookHandlers:
    def __init__(self, books: Books, search: LibrarySearch) -> None:
        self._books = books
        self._search = search

    async def list(self, query: messages.BookQuery, root: str) -> Data[Items[Json]]:
        """List books, filtered by author, series, work, tag, ISBN, start of the title or words."""
        found = None
        if query.search is not None:
            found = await self._search.books(query.search)
        return _listed(root, await self._books.page(query, found))

    async def create(self, body: messages.BookBody, root: str) -> Response[Data[Json]]:
        """Create a book."""
        return await self._reply(root, await self._books.create(body), 201)

    async def get(self, id: Id, root: str) -> Response[Data[Json]]:
        """Return one book, with its ETag."""
        return await self._reply(root, await self._books.get(id))

    async def replace(
        self, id: Id, body: messages.BookBody, conditions: Conditions, root: str
    ) -> Response[Data[Json]]:
        """Replace the members of a book. With `If-Match`: only if its ETag is still that one."""
        check = revision_check(conditions)
        return await self._reply(root, await self._books.change(id, body, check))

    async def change(
        self, id: Id, body: messages.BookPatch, conditions: Conditions, root: str
    ) -> Response[Data[Json]]:
        """Change the members of a book that the body has."""
        check = revision_check(conditions)
        return await self._reply(root, await self._books.change(id, body, check))

    async def delete(
        self, id: Id, query: messages.BookDeleteQuery, conditions: Conditions, root: str
    ) -> Response[Data[Json] | None]:
        """Put a book into the bin; with `?purge=true`, delete one that is there for good."""
        if query.purge:
            await self._books.purge(id, revision_check(conditions))
            return Response(None, 204)
        entry = await self._books.bin(id, revision_check(conditions))
        shown = await self._books.show(entry.record)
        add_root(root, [shown])
        return Response(data({**shown, "soft_delete": True}))

    async def restore(self, id: Id, conditions: Conditions, root: str) -> Response[Data[Json]]:
        """Take a book out of the bin."""
        return await self._reply(root, await self._books.restore(id, revision_check(conditions)))

    async def binned(self, query: messages.PageQuery, root: str) -> Data[Items[Json]]:
        """List the books in the bin, the oldest deletion first."""
        found = await self._books.binned(query.limit, query.cursor, query.offset)
        return _listed(root, found)

    async def count(self) -> Data[dict[str, int]]:
        """Count the books that are not in the bin."""
        return data({"count": await self._books.count()})

    async def batch(self, body: messages.BatchBody) -> Data[Json]:
        """Apply the same changes to many books, each by itself."""
        updated, errors = 0, []
        for id in dict.fromkeys(body.ids):
            try:
                await self._books.change(id, body.updates, Conditions().check)
                updated += 1
            except (NotFoundError, RecordError, ConflictError) as error:
                errors.append({"id": id, "error": str(error)})
        return data({"updated": updated, "failed": len(errors), "errors": errors})

    async def search(self, query: messages.SearchQuery, root: str) -> Data[Items[Json]]:
        """Find books by words in titles, authors, series, narrators, tags and descriptions."""
        limit, start = page_limit(query.limit), offset_cursor(query.cursor, query.offset)
        ids = await self._search.books(query.q, after=query.after)
        found = messages.BookQuery(limit=limit, offset=start)
        return _listed(root, await self._books.page(found, ids))

    async def _reply(
        self, root: str, entry: Entry[Book], status: int = 200
    ) -> Response[Data[Json]]:
        shown = await self._books.show(entry.record)
        add_root(root, [shown])
        return tagged(shown, entry.revision, status)


def _listed(root: str, found: Data[Items[Json]]) -> Data[Items[Json]]:
    add_root(root, found.data.items)
    return found


def book_routes(books: Books, search: LibrarySearch) -> Mapping[str, Route]:
    on = BookHandlers(books, search)
    example = {"title": "The Dispossessed", "tags": ["utopia"]}
    absent: list[type[KeyhouseError]] = [NotFoundError, RevisionError]
    replied = {201: Any}
    found: dict[str, Route] = {"search": api.get("/search", on.search, scope=VIEW)}
    for path in ("/audiobooks", "/books"):
        name = path[1:]
        found |= {
            f"{name}_list": api.get(path, on.list, scope=VIEW),
            f"{name}_create": api.post(
                path, on.create, scope=EDIT, replies=replied, example=example
            ),
            f"{name}_count": api.get(f"{path}/count", on.count, scope=VIEW),
            f"{name}_bin": api.get(f"{path}/soft-deleted", on.binned, scope=VIEW),
            f"{name}_batch": api.post(f"{path}/batch", on.batch, scope=EDIT),
            f"{name}_get": api.get(f"{path}/{{id}}", on.get, scope=VIEW, problems=[NotFoundError]),
            f"{name}_replace": api.put(
                f"{path}/{{id}}", on.replace, scope=EDIT, problems=absent, example=example
            ),
            f"{name}_change": api.patch(f"{path}/{{id}}", on.change, scope=EDIT, problems=absent),
            f"{name}_delete": api.delete(
                f"{path}/{{id}}",
                on.delete,
                scope=DELETE,
                problems=[*absent, ConflictError],
                replies={200: Data[Json], 204: None},
            ),
            f"{name}_restore": api.post(
                f"{path}/{{id}}/restore", on.restore, scope=DELETE, problems=absent
            ),
        }
    return found
