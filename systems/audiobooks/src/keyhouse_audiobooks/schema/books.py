"""Authors, series, works, books, their files and covers: keys, in the document's order."""

from keyhouse.keys import Regex, Template, normal
from keyhouse.schema import First, Index, Owner, Record, Reference, Unique
from keyhouse_audiobooks.books.isbn import isbn10, isbn13
from keyhouse_audiobooks.records import (
    VERSION,
    Asset,
    Author,
    Book,
    Segment,
    Series,
    Work,
    digest,
    is_binned,
    is_listed,
    is_scanned,
)

__all__ = [
    "ASSET",
    "ASSETS_BY_HASH",
    "ASSETS_OF_BOOK",
    "AUTHOR",
    "AUTHOR_BY_NAME",
    "BIN",
    "BIN_OF_AUTHOR",
    "BIN_OF_SERIES",
    "BIN_OF_WORK",
    "BOOK",
    "BOOKS_BY_AUTHOR",
    "BOOKS_BY_GENRE",
    "BOOKS_BY_ISBN10",
    "BOOKS_BY_ISBN13",
    "BOOKS_BY_SERIES",
    "BOOKS_BY_TAG",
    "BOOKS_BY_TITLE",
    "BOOKS_BY_WORK",
    "BOOK_BY_SOURCE",
    "SEGMENT",
    "SEGMENTS_BY_HASH",
    "SEGMENTS_BY_PATH",
    "SEGMENTS_IN_ORDER",
    "SEGMENTS_OF_BOOK",
    "SERIES",
    "SERIES_BY_NAME",
    "SERIES_BY_NAME_AND_AUTHOR",
    "SERIES_OF_AUTHOR",
    "WORK",
    "WORKS_OF_AUTHOR",
    "WORKS_OF_SERIES",
    "WORK_BY_TITLE",
]

# Author

AUTHOR_BY_NAME = Unique("idx:author:name:{normalized_name:norm900}", value="id")
AUTHOR = Record(
    Author,
    "a:{id:ulid}",
    AUTHOR_BY_NAME,
    computed={"normalized_name": lambda author: normal(author.name)},
    version=VERSION,
    unknown="keep",
    created="created_at",
)

# Series

SERIES_BY_NAME_AND_AUTHOR = Unique(
    "idx:series:name_author:{normalized_name:norm900}:{author_id:ulid?}", value="id"
)
SERIES_BY_NAME = First(
    "idx:series:name:{normalized_name:norm900}", value="id", among=SERIES_BY_NAME_AND_AUTHOR
)
SERIES_OF_AUTHOR = Index("idx:series:author:{author_id:ulid}:{id:ulid}")
SERIES = Record(
    Series,
    "s:{id:ulid}",
    SERIES_BY_NAME,
    SERIES_BY_NAME_AND_AUTHOR,
    SERIES_OF_AUTHOR,
    references=Reference(AUTHOR, by=SERIES_OF_AUTHOR),
    computed={"normalized_name": lambda series: normal(series.name)},
    version=VERSION,
    unknown="keep",
    created="created_at",
)

# Work (title-level logical grouping)

WORK_BY_TITLE = Unique(
    "idx:work:title:{normalized_title:norm900}:author:{author_id:ulid?}", value="id"
)
WORKS_OF_AUTHOR = Index("idx:work:author:{author_id:ulid}:{id:ulid}")
WORKS_OF_SERIES = Index("idx:work:series:{series_id:ulid}:{id:ulid}")
WORK = Record(
    Work,
    "w:{id:ulid}",
    WORK_BY_TITLE,
    WORKS_OF_AUTHOR,
    WORKS_OF_SERIES,
    references=(Reference(AUTHOR, by=WORKS_OF_AUTHOR), Reference(SERIES, by=WORKS_OF_SERIES)),
    computed={"normalized_title": lambda work: normal(work.title)},
    version=VERSION,
    unknown="keep",
    created="created_at",
    updated="updated_at",
)

# Book (logical)

BOOKS_BY_AUTHOR = Index("idx:book:author:{author_id:ulid}:{id:ulid}", when=is_listed)
BOOKS_BY_SERIES = Index(
    "idx:book:series:{series_id:ulid}:{series_position:010.3f?}:{id:ulid}", when=is_listed
)
BOOKS_BY_TITLE = Index("idx:book:title:{normalized_title:norm900}:{id:ulid}", when=is_listed)
BOOKS_BY_TAG = Index("idx:book:tag:{tag:norm900}:{id:ulid}", each={"tag": "tags"}, when=is_listed)
BOOKS_BY_GENRE = Index(
    "idx:book:genre:{genre:norm900}:{id:ulid}", each={"genre": "genres"}, when=is_listed
)
BOOKS_BY_ISBN10 = Index(
    Template("idx:book:isbn10:{isbn10}:{id:ulid}", isbn10=Regex("[0-9]{9}[0-9X]")), when=is_listed
)
BOOKS_BY_ISBN13 = Index(
    Template("idx:book:isbn13:{isbn13}:{id:ulid}", isbn13=Regex("[0-9]{13}")), when=is_listed
)
BOOKS_BY_WORK = Index("idx:book:work:{work_id:ulid}:{id:ulid}", when=is_listed)
BIN = Index("idx:bin:at:{deleted_at}:{id:ulid}", when=is_binned)
BOOK_BY_SOURCE = Unique("idx:book:source:{source}", value="id", when=is_scanned)
BIN_OF_AUTHOR = Index("idx:bin:author:{author_id:ulid}:{id:ulid}", when=is_binned)
BIN_OF_SERIES = Index("idx:bin:series:{series_id:ulid}:{id:ulid}", when=is_binned)
BIN_OF_WORK = Index("idx:bin:work:{work_id:ulid}:{id:ulid}", when=is_binned)
BOOK = Record(
    Book,
    "b:{id:ulid}",
    BOOKS_BY_AUTHOR,
    BOOKS_BY_SERIES,
    BOOKS_BY_TITLE,
    BOOKS_BY_TAG,
    BOOKS_BY_GENRE,
    BOOKS_BY_ISBN10,
    BOOKS_BY_ISBN13,
    BOOKS_BY_WORK,
    BIN,
    BOOK_BY_SOURCE,
    BIN_OF_AUTHOR,
    BIN_OF_SERIES,
    BIN_OF_WORK,
    references=(
        Reference(AUTHOR, by=(BOOKS_BY_AUTHOR, BIN_OF_AUTHOR)),
        Reference(SERIES, by=(BOOKS_BY_SERIES, BIN_OF_SERIES)),
        Reference(WORK, by=(BOOKS_BY_WORK, BIN_OF_WORK)),
    ),
    computed={
        "normalized_title": lambda book: normal(book.title),
        "isbn10": lambda book: None if book.isbn10 is None else isbn10(book.isbn10),
        "isbn13": lambda book: None if book.isbn13 is None else isbn13(book.isbn13),
    },
    timestamps=("deleted_at",),
    version=VERSION,
    unknown="keep",
    created="created_at",
    updated="updated_at",
)

# Book file segment (physical)

SEGMENTS_IN_ORDER = Unique(
    "bfi:{book_id:ulid}:{track_number:010d}", value="id", when=lambda segment: bool(segment.active)
)
SEGMENTS_OF_BOOK = Index("idx:segment:book:{book_id:ulid}:{id:ulid}")
SEGMENTS_BY_HASH = Index("idx:segment:hash:{hash_sha256}:{id:ulid}")
SEGMENTS_BY_PATH = Index(
    "idx:segment:path:{path}:{id:ulid}", fields={"path": lambda segment: digest(segment.file_path)}
)
SEGMENT = Record(
    Segment,
    "bf:{id:ulid}",
    SEGMENTS_IN_ORDER,
    SEGMENTS_OF_BOOK,
    SEGMENTS_BY_HASH,
    SEGMENTS_BY_PATH,
    belongs_to=Owner(BOOK, by=SEGMENTS_OF_BOOK),
    version=VERSION,
    unknown="keep",
    created="created_at",
    updated="updated_at",
)


# Future extensions: covers

ASSETS_OF_BOOK = Index(
    "idx:asset:book:{book_id:ulid}:{id:ulid}", when=lambda asset: bool(asset.book_id)
)
ASSETS_BY_HASH = Index("idx:asset:hash:{hash_sha256}:{id:ulid}")
ASSET = Record(
    Asset,
    "asset:{id:ulid}",
    ASSETS_OF_BOOK,
    ASSETS_BY_HASH,
    belongs_to=Owner(BOOK, by=ASSETS_OF_BOOK),
    version=VERSION,
    unknown="keep",
    created="created_at",
)
