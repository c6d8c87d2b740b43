"""Forms that change the catalog: the members of a book, and the names of authors and series."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final

from msgspec import Struct

from keyhouse.errors import KeyhouseError, RevisionError
from keyhouse.http import Redirect, Route
from keyhouse.keys import normal
from keyhouse.service.pages import PageReply
from keyhouse.store import Entry, Transaction
from keyhouse_audiobooks.accounts.permissions import EDIT
from keyhouse_audiobooks.books import messages
from keyhouse_audiobooks.books.catalog import AUTHORS, SERIES_KIND, BookCatalog
from keyhouse_audiobooks.libraries import Libraries, ServedLibrary
from keyhouse_audiobooks.library import Member
from keyhouse_audiobooks.messages import Title
from keyhouse_audiobooks.records import Book
from keyhouse_audiobooks.web.frame import LibraryFrame, NameForm, at, checked, is_failure, problem

__all__ = ["EditingPages"]

NAMES_OFFERED: Final = 300
_TEXTS: Final = ("narrator", "edition", "language", "publisher", "isbn10", "isbn13")
Json = dict[str, Any]
Links = Callable[[Transaction, Book], Awaitable[Json]]


class BookForm(Struct):
    """The members of a book as text. `author` and `series` are names; tags and genres are lines."""

    revision: int
    title: str = ""
    author: str = ""
    series: str = ""
    series_position: str = ""
    narrator: str = ""
    edition: str = ""
    language: str = ""
    publisher: str = ""
    published_year: str = ""
    isbn10: str = ""
    isbn13: str = ""
    description: str = ""
    tags: str = ""
    genres: str = ""


class BookNames(Struct):
    """The names of a form, as the API takes them."""

    author: Title = ""
    series: Title = ""


class BookEditPage(Struct):
    """`authors` and `series` are names to choose from."""

    id: str
    title: str
    form: BookForm
    authors: Sequence[str]
    series: Sequence[str]
    error: str = ""


class EditingPages:
    def __init__(self, libraries: Libraries) -> None:
        self._library = libraries.of

    async def edit(self, id: str, caller: Member) -> BookEditPage:
        """The form of a book."""
        library = self._library(caller)
        entry = await library.books.get(id)
        return await _page(library, entry, await _form(library, entry))

    async def save(self, id: str, form: BookForm, caller: Member) -> PageReply | Redirect:
        """Change the members of a book that differ; a scan leaves these alone."""
        library = self._library(caller)
        entry = await library.books.get(id)
        before = await _form(library, entry)

        def check(revision: int | None) -> None:
            if revision != form.revision:
                raise RevisionError("The book was changed meanwhile: open the form again.", id=id)

        try:
            body = checked(messages.BookPatch, **_changes(form, before))
            links = _links(library.catalog, form, before)
            await library.books.change(id, body, check, links=links)
        except KeyhouseError as error:
            if is_failure(error):
                raise
            page = await _page(library, entry, form, problem(error))
            return PageReply("edit.html", page, error.status)
        return Redirect(at("books", id))

    async def rename_author(self, id: str, form: NameForm, caller: Member) -> Redirect:
        """Rename an author."""
        body = checked(messages.AuthorBody, name=form.name.strip())
        await self._library(caller).catalog.change(AUTHORS, id, body)
        return Redirect(at("authors", id))

    async def rename_series(self, id: str, form: NameForm, caller: Member) -> Redirect:
        """Rename a series."""
        body = checked(messages.SeriesPatch, name=form.name.strip())
        await self._library(caller).catalog.change(SERIES_KIND, id, body)
        return Redirect(at("series", id))

    def routes(self, frame: LibraryFrame) -> list[Route]:
        return [
            frame.page("/books/{id}/edit", self.edit, "edit.html", scope=EDIT),
            frame.form("/books/{id}/edit", self.save, scope=EDIT),
            frame.form("/authors/{id}/name", self.rename_author, scope=EDIT),
            frame.form("/series/{id}/name", self.rename_series, scope=EDIT),
        ]


async def _form(library: ServedLibrary, entry: Entry[Book]) -> BookForm:
    book = await library.books.show(entry.record)
    return BookForm(
        revision=entry.revision,
        title=book.title,
        author=book.author_name or "",
        series=book.series_name or "",
        series_position=_text(book.series_position),
        published_year=_text(book.published_year),
        description=book.description,
        tags="\n".join(book.tags),
        genres="\n".join(book.genres or ()),
        **{name: getattr(book, name) or "" for name in _TEXTS},
    )


async def _page(
    library: ServedLibrary, entry: Entry[Book], form: BookForm, error: str = ""
) -> BookEditPage:
    return BookEditPage(
        entry.record.id,
        entry.record.title,
        form,
        await library.catalog.names(AUTHORS, NAMES_OFFERED),
        await library.catalog.names(SERIES_KIND, NAMES_OFFERED),
        error,
    )


def _links(catalog: BookCatalog, form: BookForm, before: BookForm) -> Links:
    """Return a function that finds or creates the author and the series of a form."""
    author, series = form.author.strip(), form.series.strip()
    given = {"author": author, "series": series}
    checked(BookNames, **{name: value for name, value in given.items() if value})

    async def links(tx: Transaction, book: Book) -> Json:
        ids: Json = {}
        if normal(author) != normal(before.author):
            ids["author_id"] = (await catalog.author_in(tx, author))[0] if author else None
        if normal(series) != normal(before.series):
            owner = ids.get("author_id", book.author_id)
            ids["series_id"] = (await catalog.series_in(tx, series, owner))[0] if series else None
        return ids

    return links


def _changes(form: BookForm, before: BookForm) -> Json:
    """Return the members of a form that differ, as the API takes them."""
    changes: Json = {}
    for name in ("title", "description", *_TEXTS):
        value = getattr(form, name).replace("\r\n", "\n").strip()
        if value != getattr(before, name).strip():
            changes[name] = value if value or name in ("title", "description") else None
    for name, kind in (("series_position", float), ("published_year", int)):
        value = getattr(form, name).strip()
        if value != getattr(before, name):
            changes[name] = _number(value, kind) if value else None
    for name in ("tags", "genres"):
        lines = _lines(getattr(form, name))
        if lines != _lines(getattr(before, name)):
            changes[name] = lines
    return changes


def _number(text: str, kind: Callable[[str], float]) -> float | str:
    try:
        return kind(text.replace(",", "."))
    except ValueError:
        return text  # the check of the body names the member


def _lines(text: str) -> list[str]:
    return [*dict.fromkeys(line.strip() for line in text.splitlines() if line.strip())]


def _text(value: float | None) -> str:
    return "" if value is None else str(value)
