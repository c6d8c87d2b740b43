"""Routes of `audiobooks`, alias `books`, and of `authors`, `series` and `works`."""

from collections.abc import Mapping, Sequence
from typing import Any, Generic, TypeVar

from msgspec import Struct
from msgspec.structs import asdict

from keyhouse.errors import ConflictError, KeyhouseError, NotFoundError, RecordError, RevisionError
from keyhouse.http import Conditions, Response, Route
from keyhouse.store import Entry
from keyhouse_audiobooks.accounts.permissions import DELETE, EDIT, VIEW
from keyhouse_audiobooks.books import messages
from keyhouse_audiobooks.books.catalog import AUTHORS, SERIES_KIND, WORKS, Kind
from keyhouse_audiobooks.books.messages import (
    BinnedBook,
    ShownAuthor,
    ShownBook,
    ShownSeries,
    ShownWork,
)
from keyhouse_audiobooks.libraries import Libraries, ServedLibrary
from keyhouse_audiobooks.library import Member
from keyhouse_audiobooks.lists import Items, PageQuery, offset_cursor, page_limit, page_of
from keyhouse_audiobooks.messages import Count, Data, Id
from keyhouse_audiobooks.records import Book
from keyhouse_audiobooks.route_table import api, api_url, revision_check, tagged

__all__ = ["book_routes", "catalog_routes", "with_covers"]

BookReply = Response[Data[ShownBook]]
T = TypeVar("T")


def with_covers(root: str, books: Sequence[ShownBook]) -> Sequence[ShownBook]:
    """Return books with the URLs of their covers."""
    for book in books:
        if book.cover_asset_id:
            book.cover_url = api_url(root, f"books/{book.id}/cover")
    return books


class BookHandlers:
    def __init__(self, libraries: Libraries) -> None:
        self._library = libraries.of

    async def list(
        self, query: messages.BookQuery, caller: Member, root: str
    ) -> Data[Items[ShownBook]]:
        """List books, filtered by author, series, work, tag, ISBN, start of the title or words."""
        library = self._library(caller)
        found = None if query.search is None else await library.search.books(query.search)
        return _listed(root, await library.books.page(query, found))

    async def create(self, body: messages.BookBody, caller: Member, root: str) -> BookReply:
        """Create a book."""
        library = self._library(caller)
        return await _reply(library, root, await library.books.create(body), 201)

    async def get(self, id: Id, caller: Member, root: str) -> BookReply:
        """Return one book, with its ETag."""
        library = self._library(caller)
        return await _reply(library, root, await library.books.get(id))

    async def replace(
        self, id: Id, body: messages.BookBody, caller: Member, conditions: Conditions, root: str
    ) -> BookReply:
        """Replace the members of a book. With `If-Match`: only if its ETag is still that one."""
        library, check = self._library(caller), revision_check(conditions)
        return await _reply(library, root, await library.books.change(id, body, check))

    async def change(
        self, id: Id, body: messages.BookPatch, caller: Member, conditions: Conditions, root: str
    ) -> BookReply:
        """Change the members of a book that the body has."""
        library, check = self._library(caller), revision_check(conditions)
        return await _reply(library, root, await library.books.change(id, body, check))

    async def delete(
        self,
        id: Id,
        query: messages.BookDeleteQuery,
        caller: Member,
        conditions: Conditions,
        root: str,
    ) -> Response[Data[BinnedBook] | None]:
        """Put a book into the bin; with `?purge=true`, delete one that is there for good."""
        books, check = self._library(caller).books, revision_check(conditions)
        if query.purge:
            await books.purge(id, check)
            return Response(None, 204)
        shown = await books.show((await books.bin(id, check)).record)
        with_covers(root, [shown])
        return Response(Data(BinnedBook(**asdict(shown))))

    async def restore(self, id: Id, caller: Member, conditions: Conditions, root: str) -> BookReply:
        """Take a book out of the bin."""
        library, check = self._library(caller), revision_check(conditions)
        return await _reply(library, root, await library.books.restore(id, check))

    async def binned(self, query: PageQuery, caller: Member, root: str) -> Data[Items[ShownBook]]:
        """List the books in the bin, the oldest deletion first."""
        return _listed(root, await self._library(caller).books.binned(query))

    async def count(self, caller: Member) -> Data[Count]:
        """Count the books that are not in the bin."""
        return Data(Count(await self._library(caller).books.count()))

    async def batch(self, body: messages.BatchBody, caller: Member) -> Data[messages.BatchReply]:
        """Apply the same changes to many books, each by itself."""
        books = self._library(caller).books
        reply = messages.BatchReply(0, 0, [])
        for id in dict.fromkeys(body.ids):
            try:
                await books.change(id, body.updates)
                reply.updated += 1
            except (NotFoundError, RecordError, ConflictError) as error:
                reply.failed += 1
                reply.errors.append(messages.BatchError(id, str(error)))
        return Data(reply)

    async def search(
        self, query: messages.SearchQuery, caller: Member, root: str
    ) -> Data[Items[ShownBook]]:
        """Find books by words in titles, authors, series, narrators, tags and descriptions."""
        library = self._library(caller)
        limit, start = page_limit(query.limit), offset_cursor(query.cursor, query.offset)
        ids = await library.search.books(query.q, after=query.after)
        asked = messages.BookQuery(limit=limit, offset=start)
        return _listed(root, await library.books.page(asked, ids))


async def _reply(
    library: ServedLibrary, root: str, entry: Entry[Book], status: int = 200
) -> BookReply:
    shown = await library.books.show(entry.record)
    with_covers(root, [shown])
    return tagged(shown, entry.revision, status)


def _listed(root: str, listed: Items[ShownBook]) -> Data[Items[ShownBook]]:
    with_covers(root, listed.items)
    return Data(listed)


def book_routes(libraries: Libraries) -> Mapping[str, Route]:
    on = BookHandlers(libraries)
    example = {"title": "The Dispossessed", "tags": ["utopia"]}
    absent: list[type[KeyhouseError]] = [NotFoundError, RevisionError]
    table: dict[str, Route] = {"search": api.get("/search", on.search, scope=VIEW)}
    for path in ("/audiobooks", "/books"):
        name, one = path[1:], f"{path}/{{id}}"
        table |= {
            f"{name}_list": api.get(path, on.list, scope=VIEW),
            f"{name}_create": api.post(
                path, on.create, scope=EDIT, replies={201: Data[ShownBook]}, example=example
            ),
            f"{name}_count": api.get(f"{path}/count", on.count, scope=VIEW),
            f"{name}_bin": api.get(f"{path}/soft-deleted", on.binned, scope=VIEW),
            f"{name}_batch": api.post(f"{path}/batch", on.batch, scope=EDIT),
            f"{name}_get": api.get(one, on.get, scope=VIEW, problems=[NotFoundError]),
            f"{name}_replace": api.put(
                one, on.replace, scope=EDIT, problems=absent, example=example
            ),
            f"{name}_change": api.patch(one, on.change, scope=EDIT, problems=absent),
            f"{name}_delete": api.delete(
                one,
                on.delete,
                scope=DELETE,
                problems=[*absent, ConflictError],
                replies={200: Data[BinnedBook], 204: None},
            ),
            f"{name}_restore": api.post(
                f"{one}/restore", on.restore, scope=DELETE, problems=absent
            ),
        }
    return table


class CatalogHandlers(Generic[T]):
    """The handlers that all three kinds have alike."""

    def __init__(self, kind: Kind[T], libraries: Libraries) -> None:
        self.kind = kind
        self._library = libraries.of

    async def list(self, query: messages.NameQuery, caller: Member) -> Data[Items[T]]:
        """List them by name; with `author_id`, those of one author."""
        return Data(await self._library(caller).catalog.page(self.kind, query))

    async def get(self, id: Id, caller: Member) -> Response[Data[T]]:
        """Return one."""
        return _tagged(await self._library(caller).catalog.get(self.kind, id))

    async def count(self, caller: Member) -> Data[Count]:
        """Count them."""
        return Data(Count(await self._library(caller).catalog.count(self.kind)))

    async def books(
        self, id: Id, query: PageQuery, caller: Member, root: str
    ) -> Data[Items[ShownBook]]:
        """List the books of one; those of a series in their order."""
        library = self._library(caller)
        listed = page_of(await library.catalog.books(self.kind, id), query)
        return _listed(root, listed.of(await library.books.show_all(listed.items)))

    async def delete(
        self, id: Id, query: messages.DetachQuery, caller: Member, conditions: Conditions
    ) -> None:
        """Delete one that nothing refers to; `?detach=true` removes the references first."""
        catalog, check = self._library(caller).catalog, revision_check(conditions)
        await catalog.delete(self.kind, id, check, detach=query.detach)

    async def _change(
        self, id: str, body: Struct, caller: Member, conditions: Conditions
    ) -> Response[Data[T]]:
        catalog, check = self._library(caller).catalog, revision_check(conditions)
        return _tagged(await catalog.change(self.kind, id, body, check))


class AuthorHandlers(CatalogHandlers[ShownAuthor]):
    async def create(
        self, body: messages.AuthorBody, caller: Member
    ) -> Response[Data[ShownAuthor]]:
        """Create an author. One of the same name is returned, with status 200."""
        return _created(*await self._library(caller).catalog.author(body.name))

    async def change(
        self, id: Id, body: messages.AuthorBody, caller: Member, conditions: Conditions
    ) -> Response[Data[ShownAuthor]]:
        """Rename an author."""
        return await self._change(id, body, caller, conditions)

    async def merge(
        self, body: messages.AuthorsMergeBody, caller: Member
    ) -> Response[Data[ShownAuthor]]:
        """Merge authors into one: their books, series and works become those of the kept one."""
        catalog = self._library(caller).catalog
        return _tagged(await catalog.merge_authors(body.keep_id, body.merge_ids))


class SeriesHandlers(CatalogHandlers[ShownSeries]):
    async def create(
        self, body: messages.SeriesBody, caller: Member
    ) -> Response[Data[ShownSeries]]:
        """Create a series. One of the same name and author is returned, with status 200."""
        return _created(*await self._library(caller).catalog.series(body.name, body.author_id))

    async def change(
        self, id: Id, body: messages.SeriesPatch, caller: Member, conditions: Conditions
    ) -> Response[Data[ShownSeries]]:
        """Change the name or the author of a series."""
        return await self._change(id, body, caller, conditions)


class WorkHandlers(CatalogHandlers[ShownWork]):
    async def create(self, body: messages.WorkBody, caller: Member) -> Response[Data[ShownWork]]:
        """Create a work. One of the same title and author is returned, with status 200."""
        catalog = self._library(caller).catalog
        given = body.title, body.author_id, body.series_id, list(body.alt_titles)
        return _created(*await catalog.work(*given))

    async def change(
        self, id: Id, body: messages.WorkPatch, caller: Member, conditions: Conditions
    ) -> Response[Data[ShownWork]]:
        """Change a work."""
        return await self._change(id, body, caller, conditions)


def _tagged(entry: Entry[T], status: int = 200) -> Response[Data[T]]:
    return tagged(entry.record, entry.revision, status)


def _created(entry: Entry[T], is_new: bool) -> Response[Data[T]]:
    return _tagged(entry, 201 if is_new else 200)


def catalog_routes(libraries: Libraries) -> Mapping[str, Route]:
    authors = AuthorHandlers(AUTHORS, libraries)
    merge = api.post(
        "/authors/merge", authors.merge, scope=EDIT, problems=[NotFoundError, ConflictError]
    )
    return {
        "authors_merge": merge,
        **_kind_routes("authors", authors, {"name": "Ursula K. Le Guin"}),
        **_kind_routes("series", SeriesHandlers(SERIES_KIND, libraries), {"name": "Earthsea"}),
        **_kind_routes("works", WorkHandlers(WORKS, libraries), {"title": "The Dispossessed"}),
    }


def _kind_routes(name: str, on: Any, example: Mapping[str, str]) -> Mapping[str, Route]:
    path, one = f"/{name}", f"/{name}/{{id}}"
    shown = on.kind.shown
    reply, listed = Data[shown], {200: Data[Items[shown]]}  # type: ignore[valid-type]
    problems: list[type[KeyhouseError]] = [NotFoundError, RevisionError, ConflictError]
    absent: list[type[KeyhouseError]] = [NotFoundError]
    return {
        f"{name}_list": api.get(path, on.list, scope=VIEW, replies=listed),
        f"{name}_create": api.post(
            path, on.create, scope=EDIT, replies={200: reply, 201: reply}, example=example
        ),
        f"{name}_count": api.get(f"{path}/count", on.count, scope=VIEW),
        f"{name}_get": api.get(one, on.get, scope=VIEW, problems=absent, replies={200: reply}),
        f"{name}_replace": api.put(one, on.change, scope=EDIT, problems=problems),
        f"{name}_change": api.patch(one, on.change, scope=EDIT, problems=problems),
        f"{name}_delete": api.delete(one, on.delete, scope=DELETE, problems=problems),
        f"{name}_books": api.get(f"{one}/books", on.books, scope=VIEW, problems=absent),
    }
