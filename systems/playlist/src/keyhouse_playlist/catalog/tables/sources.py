"""Files that a catalog is read from: a JSON array of items, or CSV with a header.

One invalid item rejects the whole file, by its line: a catalog with holes would look complete.
"""

import csv
import io
import json
from collections.abc import Iterator
from pathlib import Path
from stat import S_ISREG
from typing import Any, Final, NoReturn
from urllib.parse import urlsplit

import msgspec

from keyhouse.normalization import has_controls
from keyhouse_playlist.catalog.tables.item import CatalogItem
from keyhouse_playlist.errors import CatalogSourceError
from keyhouse_playlist.limits import (
    ADDRESS_CHARS_MAX,
    CATALOG_FILE_BYTES_MAX,
    CATALOG_ITEMS_MAX,
    CATEGORY_CHARS_MAX,
    ITEM_CATEGORIES_MAX,
    TITLE_CHARS_MAX,
    VIDEO_ID_CHARS_MAX,
)
from keyhouse_playlist.names import has_control_characters

__all__ = ["check_item", "is_web_address", "parse_source", "read_source_file"]

_CATEGORY_SEPARATOR: Final = "|"
_MEMBERS: Final = tuple(CatalogItem.__struct_fields__)
_REQUIRED: Final = ("video_id", "title", "manifest_url")
_BLANK: Final = " \t\r\n"


class _Given(CatalogItem, frozen=True, kw_only=True, forbid_unknown_fields=True):
    pass


def read_source_file(path: Path) -> list[CatalogItem]:
    """Read a file of items. Raises CatalogSourceError, with the line, if anything is wrong."""
    try:
        about = path.stat()
        if not S_ISREG(about.st_mode):  # a pipe never ends, a device has no size
            raise CatalogSourceError(
                "The file cannot be read.", file=str(path), reason="not a regular file"
            )
        if about.st_size > CATALOG_FILE_BYTES_MAX:
            raise CatalogSourceError(
                "The file is too large for a catalog.",
                file=str(path),
                limit=CATALOG_FILE_BYTES_MAX,
            )
        data = path.read_bytes()
    except (OSError, ValueError) as error:  # ValueError: U+0000 in the path
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise CatalogSourceError(
            "The file cannot be read.", file=str(path), reason=reason
        ) from None
    return parse_source(data, path.name)


def parse_source(data: bytes, name: str) -> list[CatalogItem]:
    """Return the items of a file's content; `name` says whether it is CSV."""
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise CatalogSourceError("The file is not UTF-8 text.", file=name, line=line) from None
    rows = _csv_items(text, name) if name.lower().endswith(".csv") else _json_items(text, name)
    items: dict[str, CatalogItem] = {}
    for line, item in rows:
        if item.video_id in items:
            _reject(name, line, f"a second item with the id {item.video_id!r}")
        items[item.video_id] = item
        if len(items) > CATALOG_ITEMS_MAX:
            _reject(name, line, f"more than {CATALOG_ITEMS_MAX:,} items")
    return list(items.values())


def check_item(item: CatalogItem) -> str | None:
    """Return what is wrong with an item; None if nothing is."""
    if not item.video_id.strip() or len(item.video_id) > VIDEO_ID_CHARS_MAX:
        return f"video_id must have 1 to {VIDEO_ID_CHARS_MAX} characters"
    if not item.title.strip() or len(item.title) > TITLE_CHARS_MAX:
        return f"title must have 1 to {TITLE_CHARS_MAX} characters"
    if has_control_characters(item.title):
        return "title must have no line breaks and no control characters"
    if not is_web_address(item.manifest_url):
        return "manifest_url must be an http or https address"
    if item.thumbnail_url is not None and not is_web_address(item.thumbnail_url):
        return "thumbnail_url must be an http or https address"
    if item.duration_seconds is not None and not 0 <= item.duration_seconds < 2**31:
        return "duration_seconds must be a number of seconds from 0"
    if len(item.categories) > ITEM_CATEGORIES_MAX:
        return f"an item has at most {ITEM_CATEGORIES_MAX} categories"
    if not all(each.strip() and len(each) <= CATEGORY_CHARS_MAX for each in item.categories):
        return f"a category must have 1 to {CATEGORY_CHARS_MAX} characters"
    if any(map(has_controls, item.categories)):
        return "a category must have no line breaks and no control characters"
    return None


def is_web_address(text: str) -> bool:
    """Return whether a text is an address that a browser can load."""
    if len(text) > ADDRESS_CHARS_MAX:
        return False
    try:
        parts = urlsplit(text)
    except ValueError:
        return False
    return parts.scheme in ("http", "https") and bool(parts.netloc) and text.isprintable()


def _json_items(text: str, name: str) -> Iterator[tuple[int, CatalogItem]]:
    """Read the array item by item, so that an error has the line of its item."""
    decoder = json.JSONDecoder()
    at = _skip(text, 0)
    if text[at : at + 1] != "[":
        _reject(name, 1, "not a JSON array of items")
    at = _skip(text, at + 1)
    line, counted = 1, 0
    while text[at : at + 1] != "]":
        line += text.count("\n", counted, at)
        counted = at
        try:
            value, end = decoder.raw_decode(text, at)
        except (json.JSONDecodeError, RecursionError) as error:
            _reject(name, getattr(error, "lineno", line), "not valid JSON")
        yield line, _checked(value, name, line)
        at = _skip(text, end)
        if text[at : at + 1] == ",":
            at = _skip(text, at + 1)
            if text[at : at + 1] == "]":
                _reject(name, text.count("\n", 0, at) + 1, "not valid JSON")
        elif text[at : at + 1] != "]":
            _reject(name, text.count("\n", 0, at) + 1, "not valid JSON")
    if text[at + 1 :].strip(_BLANK):
        _reject(name, text.count("\n", 0, at) + 1, "something follows the array")


def _skip(text: str, at: int) -> int:
    while at < len(text) and text[at] in _BLANK:
        at += 1
    return at


def _csv_items(text: str, name: str) -> Iterator[tuple[int, CatalogItem]]:
    reader = csv.DictReader(io.StringIO(text, newline=""), strict=True)
    try:
        header = [each.strip() for each in reader.fieldnames or ()]
        reader.fieldnames = header
        unknown = [each for each in header if each not in _MEMBERS]
        missing = [each for each in _REQUIRED if each not in header]
        if unknown or missing or len(set(header)) != len(header):
            _reject(name, 1, f"the header must be columns of {', '.join(_MEMBERS)}")
        for row in reader:
            yield (
                reader.line_num,
                _checked(_csv_value(row, name, reader.line_num), name, reader.line_num),
            )
    except csv.Error as error:
        _reject(name, reader.line_num, str(error))


def _csv_value(row: dict[str, Any], name: str, line: int) -> dict[str, Any]:
    if None in row or any(value is None for value in row.values()):
        _reject(name, line, "not as many columns as the header")
    value: dict[str, Any] = {key: text for key, text in row.items() if text != ""}
    if "categories" in row:
        parts = str(row["categories"]).split(_CATEGORY_SEPARATOR)
        value["categories"] = [part.strip() for part in parts if part.strip()]
    if (seconds := value.get("duration_seconds")) is not None:
        try:
            value["duration_seconds"] = int(seconds)
        except ValueError:
            _reject(name, line, "duration_seconds must be a whole number")
    return value


def _checked(value: object, name: str, line: int) -> CatalogItem:
    try:
        given = msgspec.convert(value, _Given)
        members = msgspec.structs.asdict(given)
        members |= {
            "title": given.title.strip(),
            "categories": [each.strip() for each in given.categories],
        }
        item = CatalogItem(**members)
        _encodable(item)
    except (msgspec.ValidationError, UnicodeEncodeError) as error:
        _reject(name, line, str(error))
    if (reason := check_item(item)) is not None:
        _reject(name, line, reason)
    return item


def _encodable(item: CatalogItem) -> None:
    """Raise UnicodeEncodeError for a lone surrogate, which is not text."""
    for text in (item.video_id, item.title, *item.categories):
        text.encode()


def _reject(name: str, line: int, reason: str) -> NoReturn:
    raise CatalogSourceError(
        "The file was not imported: correct the line, and import it again.",
        file=name,
        line=line,
        reason=reason,
    )
