"""Parses the parts of SQL engine URLs that drivers do not: the layout, and SQLite's file."""

from typing import Final
from urllib.parse import parse_qsl, urlencode

from keyhouse.engines.sql.layout import Layout, layout_of
from keyhouse.errors import UsageError

CHANGES_PARAMETERS: Final = ("changes_kept", "changes_seconds")
"""Parameters of every engine's URL: see `engines.retention`."""

__all__ = ["CHANGES_PARAMETERS", "split_layout", "split_parameter", "sqlite_file"]


def split_layout(url: str) -> tuple[str, Layout | None]:
    """Return the URL without `layout=NAME`, and the layout of that name or None."""
    bare, names = split_parameter(url, "layout")
    if not names:
        return url, None
    if len(names) > 1 or not names[0]:
        raise UsageError("Invalid layout in the URL; write ?layout=NAME, once", layouts=names)
    return bare, layout_of(names[0])


def split_parameter(url: str, name: str) -> tuple[str, list[str]]:
    """Return the URL without a parameter of its query, and the values that it had."""
    front, _, query = url.partition("?")
    settings = parse_qsl(query, keep_blank_values=True)
    values = [value for each, value in settings if each == name]
    if not values:
        return url, []
    rest = urlencode([(each, value) for each, value in settings if each != name])
    return f"{front}?{rest}" if rest else front, values


def sqlite_file(url: str) -> str:
    """Return the file of a `sqlite:` URL, after `split_layout`."""
    for name in CHANGES_PARAMETERS:
        url, _ = split_parameter(url, name)
    path = url.partition(":")[2].removeprefix("///")
    if path == ":memory:":
        raise UsageError("Invalid SQLite URL: for a store in memory write memory:", url=url)
    if not path or path.startswith("//"):
        raise UsageError("Invalid SQLite URL; write sqlite:file.db", url=url)
    if "?" in path:
        raise UsageError(
            "Unknown setting in the SQLite URL; it has only layout=, changes_kept= and"
            " changes_seconds=.",
            url=url,
        )
    return path
