"""Requests and replies of books, authors, series and works."""

from typing import Annotated, Literal

from msgspec import UNSET, Meta, Struct, UnsetType

from keyhouse_audiobooks.lists import PageQuery
from keyhouse_audiobooks.messages import Id, Title
from keyhouse_audiobooks.records import Author, Book, Seconds, Series, Work

Line = Annotated[str, Meta(max_length=10_000)]
"""As long as a tag that a scan reads."""
Description = Annotated[str, Meta(max_length=100_000)]
SortBy = Literal[
    "title", "author", "series_position", "created_at", "updated_at", "published_year", "duration"
]
Order = Literal["asc", "desc"]


class BookQuery(PageQuery):
    author_id: Id | None = None
    series_id: Id | None = None
    work_id: Id | None = None
    tag: str | None = None
    genre: str | None = None
    isbn: str | None = None
    title_prefix: str | None = None
    search: str | None = None
    sort_by: SortBy | None = None
    sort_order: Order = "asc"


class SearchQuery(PageQuery):
    """`after`: a revision that must be found."""

    q: str = ""
    after: int = 0


class ShownBook(Book, kw_only=True):
    """A book with the names that it refers to, without its `source`."""

    author_name: str | None
    series_name: str | None
    duration: Seconds | None
    cover_url: str | None = None


class BinnedBook(ShownBook, kw_only=True):
    """A book that was just put into the bin."""

    soft_delete: bool = True


Tags = list[Annotated[str, Meta(min_length=1, max_length=200)]]


class BookBody(Struct, forbid_unknown_fields=True):
    """A whole book: a member that is absent is unset. To change some members, use PATCH. Members
    that the service sets, such as `author_name`, are rejected: send `author_id`."""

    title: Title
    author_id: Id | None = None
    series_id: Id | None = None
    series_position: Annotated[float, Meta(ge=0, lt=1_000_000)] | None = None
    work_id: Id | None = None
    narrator: Line | None = None
    edition: Line | None = None
    language: Line | None = None
    publisher: Line | None = None
    isbn10: Line | None = None
    isbn13: Line | None = None
    description: Description = ""
    published_year: Annotated[int, Meta(ge=-5_000, le=9_999)] | None = None
    tags: Tags = []
    genres: Tags | UnsetType = UNSET


class BookPatch(Struct, forbid_unknown_fields=True):
    title: Title | UnsetType = UNSET
    author_id: Id | UnsetType | None = UNSET
    series_id: Id | UnsetType | None = UNSET
    series_position: Annotated[float, Meta(ge=0, lt=1_000_000)] | UnsetType | None = UNSET
    work_id: Id | UnsetType | None = UNSET
    narrator: Line | UnsetType | None = UNSET
    edition: Line | UnsetType | None = UNSET
    language: Line | UnsetType | None = UNSET
    publisher: Line | UnsetType | None = UNSET
    isbn10: Line | UnsetType | None = UNSET
    isbn13: Line | UnsetType | None = UNSET
    description: Description | UnsetType = UNSET
    published_year: Annotated[int, Meta(ge=-5_000, le=9_999)] | UnsetType | None = UNSET
    tags: Tags | UnsetType = UNSET
    genres: Tags | UnsetType = UNSET


class BookDeleteQuery(Struct):
    soft_delete: bool = False
    purge: bool = False


class DetachQuery(Struct):
    detach: bool = False


class BatchBody(Struct, forbid_unknown_fields=True):
    ids: Annotated[list[Id], Meta(min_length=1, max_length=500)]
    updates: BookPatch


class BatchError(Struct):
    id: str
    error: str


class BatchReply(Struct):
    updated: int
    failed: int
    errors: list[BatchError]


class AuthorBody(Struct, forbid_unknown_fields=True):
    name: Title


class SeriesBody(Struct, forbid_unknown_fields=True):
    name: Title
    author_id: Id | None = None


class SeriesPatch(Struct, forbid_unknown_fields=True):
    name: Title | UnsetType = UNSET
    author_id: Id | UnsetType | None = UNSET


class WorkBody(Struct, forbid_unknown_fields=True):
    title: Title
    author_id: Id | None = None
    series_id: Id | None = None
    alt_titles: list[Title] = []


class WorkPatch(Struct, forbid_unknown_fields=True):
    title: Title | UnsetType = UNSET
    author_id: Id | UnsetType | None = UNSET
    series_id: Id | UnsetType | None = UNSET
    alt_titles: list[Title] | UnsetType = UNSET


class NameQuery(PageQuery):
    name_prefix: str | None = None
    author_id: Id | None = None


class AuthorsMergeBody(Struct, forbid_unknown_fields=True):
    keep_id: Id
    merge_ids: Annotated[list[Id], Meta(min_length=1, max_length=100)]


class ShownAuthor(Author, kw_only=True):
    book_count: int


class ShownSeries(Series, kw_only=True):
    book_count: int


class NamedSeries(ShownSeries, kw_only=True):
    author_name: str | None


class ShownWork(Work, kw_only=True):
    book_count: int
