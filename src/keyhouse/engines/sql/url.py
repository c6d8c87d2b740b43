"""What the URLs of the two SQL engines say beyond what their drivers read in them: the layout, and SQLite's file."""

from urllib.parse import parse_qsl, urlencode

from keyhouse.engines.sql.layout import Layout, layout_of
from keyhouse.errors import UsageError

__all__ = ["split_layout", "sqlite_file"]


def split_layout(url: str) -> tuple[str, Layout | None]:
    """The URL without `layout=NAME`, and the layout of that name: a system's own, or the usual one under the name."""
    front, mark, query = url.partition("?")
    settings = parse_qsl(query, keep_blank_values=True)
    names = [value for name, value in settings if name == "layout"]
    if not mark or not names:
        return url, None
    if len(names) > 1 or not names[0]:
        raise UsageError("A URL names one layout: ?layout=NAME", layouts=names)
    rest = urlencode([(name, value) for name, value in settings if name != "layout"])
    return f"{front}?{rest}" if rest else front, layout_of(names[0])


def sqlite_file(url: str) -> str:
    """The file of a `sqlite:` URL that names no layout any more."""
    path = url.partition(":")[2].removeprefix("///")
    if not path or path.startswith("//") or path == ":memory:":
        raise UsageError("A SQLite URL names a file: sqlite:///folder/file.db", url=url)
    if "?" in path:
        raise UsageError("A SQLite URL has one setting: ?layout=NAME", url=url)
    return path
