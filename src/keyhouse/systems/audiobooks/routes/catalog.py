"""Routes of `authors`, `series` and `works`."""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

from msgspec import Struct

from keyhouse.errors import ConflictError, KeyhouseError, NotFoundError, RevisionError
from keyhouse.http import Conditions, Response, Route
from keyhouse.keys import normal
from keyhouse.schema import Index, Record
from keyhouse.store import Entry
from keyhouse.systems.audiobooks import messages
from keyhouse.systems.audiobooks.book_catalog import BookCatalog
from keyhouse.systems.audiobooks.books import Books
from keyhouse.systems.audiobooks.library import Data, Items, data, items, page_limit, page_of
from keyhouse.systems.audiobooks.messages import Id
from keyhouse.systems.audiobooks.permissions import DELETE, EDIT, VIEW
from keyhouse.systems.audiobooks.routes.table import add_root, api, revision_check, tagged
from keyhouse.systems.audiobooks.schema import (
    AUTHOR,
    AUTHOR_BY_NAME,
    BOOKS_BY_AUTHOR,
    BOOKS_BY_SERIES,
    BOOKS_BY_WORK,
    SERIES,
    SERIES_BY_NAME_AND_AUTHOR,
    SERIES_OF_AUTHOR,
    WORK,
    WORK_BY_TITLE,
    WORKS_OF_AUTHOR,
)

__all__ = ["catalog_routes"]

Json = dict[str, Any]


class _Kind(Struct, frozen=True):
    """One of the three kinds of records, and the indexes that lists read."""

    path: str
    record: Record[Any]
    by_name: Index
    of_author: Index | None
    books: Index
    member: str


AUTHORS: Final = _Kind("authors", AUTHOR, AUTHOR_BY_NAME, None, BOOKS_BY_AUTHOR, "author_id")
SERIES_KIND: Final = _Kind(
    "series", SERIES, SERIES_BY_NAME_AND_AUTHOR, SERIES_OF_AUTHOR, BOOKS_BY_SERIES, "series_id"
)
WORKS: Final = _Kind("works", WORK, WORK_BY_TITLE, WORKS_OF_AUTHOR, BOOKS_BY_WORK, "work_id")


class CatalogHandlers:
    """The handlers that all three kinds have alike."""

    def __init__(self, kind: _Kind, catalog: BookCatalog, books: Books) -> None:
        self._kind = kind
        self._catalog = catalog
        self._store = catalog.store
        self._books = books

    async def list(self, query: messages.NameQuery) -> Data[Items[Json]]:
        """List them by name; with `author_id`, those of one author."""
        kind, limit = self._kind, page_limit(query.limit)
        options: Json = {"by": kind.by_name}
        if query.author_id is not None and kind.of_author is not None:
            options = {"by": kind.of_author, "author_id": query.author_id}
        elif query.name_prefix is not None:
            options["prefix"] = normal(query.name_prefix) or None
        total = None
        if query.offset or (query.cursor or "").startswith("@"):
            found = [entry async for entry in self._store.scan(kind.record, **options)]
            total = len(found)
            entries, cursor = page_of(found, limit, query.cursor, query.offset)
        else:
            page = await self._store.page(kind.record, limit=limit, cursor=query.cursor, **options)
            entries, cursor = list(page.entries), page.cursor
        return items([await self._show(each) for each in entries], total=total, cursor=cursor)

    async def get(self, id: Id) -> Response[Data[Json]]:
        """Return one."""
        kind = self._kind
        return await self._reply(
            await self._catalog.library.require(kind.record, kind.record.name, id=id)
        )

    async def count(self) -> Data[dict[str, int]]:
        """Count them."""
        return data({"count": await self._store.count(self._kind.record)})

    async def books(self, id: Id, query: messages.PageQuery, root: str) -> Data[Items[Json]]:
        """List the books of one; those of a series in their order."""
        kind = self._kind
        await self._catalog.library.require(kind.record, kind.record.name, id=id)
        found = await self._catalog.books(kind.books, **{kind.member: id})
        page, cursor = page_of(found, query.limit, query.cursor, query.offset)
        shown = await self._books.show_all(page)
        add_root(root, shown)
        return items(shown, total=len(found), cursor=cursor)

    async def _show(self, entry: Entry[Any]) -> Json:
        kind = self._kind
        shown: Json = kind.record.shown(entry.record)
        shown["book_count"] = await self._store.count(kind.books, **{kind.member: entry.record.id})
        return shown

    async def _reply(self, entry: Entry[Any], status: int = 200) -> Response[Data[Json]]:
        return tagged(await self._show(entry), entry.revision, status)

    async def _created(self, made: tuple[Entry[Any], bool]) -> Response[Data[Json]]:
        return await self._reply(made[0], 201 if made[1] else 200)


class AuthorHandlers(CatalogHandlers):
    async def create(self, body: messages.AuthorBody) -> Response[Data[Json]]:
        """Create an author. One of the same name is returned, with status 200."""
        return await self._created(await self._catalog.author(body.name))

    async def change(
        self, id: Id, body: messages.AuthorBody, conditions: Conditions
    ) -> Response[Data[Json]]:
        """Rename an author."""
        check = revision_check(conditions)
        return await self._reply(await self._catalog.change(AUTHOR, id, body, check))

    async def delete(self, id: Id, query: messages.DetachQuery, conditions: Conditions) -> None:
        """Delete an author that nothing refers to; `?detach=true` removes the references first."""
        await self._catalog.delete_author(id, revision_check(conditions), detach=query.detach)

    async def merge(self, body: messages.AuthorsMergeBody) -> Response[Data[Json]]:
        """Merge authors into one: their books, series and works become those of the kept one."""
        return await self._reply(await self._catalog.merge_authors(body.keep_id, body.merge_ids))


class SeriesHandlers(CatalogHandlers):
    async def create(self, body: messages.SeriesBody) -> Response[Data[Json]]:
        """Create a series. One of the same name and author is returned, with status 200."""
        return await self._created(await self._catalog.series(body.name, body.author_id))

    async def change(
        self, id: Id, body: messages.SeriesPatch, conditions: Conditions
    ) -> Response[Data[Json]]:
        """Change the name or the author of a series."""
        check = revision_check(conditions)
        return await self._reply(await self._catalog.change(SERIES, id, body, check))

    async def delete(self, id: Id, query: messages.DetachQuery, conditions: Conditions) -> None:
        """Delete a series that nothing refers to; `?detach=true` removes the references first."""
        await self._catalog.delete_series(id, revision_check(conditions), detach=query.detach)


class WorkHandlers(CatalogHandlers):
    async def create(self, body: messages.WorkBody) -> Response[Data[Json]]:
        """Create a work. One of the same title and author is returned, with status 200."""
        made = await self._catalog.work(
            body.title, body.author_id, body.series_id, list(body.alt_titles)
        )
        return await self._created(made)

    async def change(
        self, id: Id, body: messages.WorkPatch, conditions: Conditions
    ) -> Response[Data[Json]]:
        """Change a work."""
        check = revision_check(conditions)
        return await self._reply(await self._catalog.change(WORK, id, body, check))

    async def delete(self, id: Id, query: messages.DetachQuery, conditions: Conditions) -> None:
        """Delete a work without books; `?detach=true` takes its books out first."""
        await self._catalog.delete_work(id, revision_check(conditions), detach=query.detach)


def catalog_routes(catalog: BookCatalog, books: Books) -> Mapping[str, Route]:
    authors = AuthorHandlers(AUTHORS, catalog, books)
    merge = api.post(
        "/authors/merge", authors.merge, scope=EDIT, problems=[NotFoundError, ConflictError]
    )
    handlers: list[tuple[_Kind, Any, Json]] = [
        (AUTHORS, authors, {"name": "Ursula K. Le Guin"}),
        (SERIES_KIND, SeriesHandlers(SERIES_KIND, catalog, books), {"name": "Earthsea"}),
        (WORKS, WorkHandlers(WORKS, catalog, books), {"title": "The Dispossessed"}),
    ]
    found: dict[str, Route] = {"authors_merge": merge}
    for kind, on, example in handlers:
        found |= _routes(kind.path, on, example)
    return found


def _routes(name: str, on: Any, example: Json) -> Mapping[str, Route]:
    problems: list[type[KeyhouseError]] = [NotFoundError, RevisionError, ConflictError]
    absent: list[type[KeyhouseError]] = [NotFoundError]
    create: Callable[..., Awaitable[Any]] = on.create
    return {
        f"{name}_list": api.get(f"/{name}", on.list, scope=VIEW),
        f"{name}_create": api.post(
            f"/{name}",
            create,
            scope=EDIT,
            replies={200: Data[Json], 201: Data[Json]},
            example=example,
        ),
        f"{name}_count": api.get(f"/{name}/count", on.count, scope=VIEW),
        f"{name}_get": api.get(f"/{name}/{{id}}", on.get, scope=VIEW, problems=absent),
        f"{name}_replace": api.put(f"/{name}/{{id}}", on.change, scope=EDIT, problems=problems),
        f"{name}_change": api.patch(f"/{name}/{{id}}", on.change, scope=EDIT, problems=problems),
        f"{name}_delete": api.delete(f"/{name}/{{id}}", on.delete, scope=DELETE, problems=problems),
        f"{name}_books": api.get(f"/{name}/{{id}}/books", on.books, scope=VIEW, problems=absent),
    }
