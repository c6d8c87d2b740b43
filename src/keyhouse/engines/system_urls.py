"""Engine URLs per system, from one URL for all: each system gets its own table, folder or bucket.

`{system}` in the URL is replaced by the system's name. Without it, the part of the URL that
separates stores is set to the system's name, so that two systems never share spaces:

    sqlite:, postgresql:  layout=<system>: the system's own tables
    rocksdb:folder        folder/<system>
    nats:                 bucket=<system>, or prefix= if the system's spaces are buckets
    dynamodb://table      the tables table-<system>, with layout=<system>
    memory:               one engine per system
"""

from contextlib import suppress
from pathlib import Path
from typing import Final
from urllib.parse import parse_qsl, urlencode, urlsplit

from keyhouse.engines.url import public_url
from keyhouse.errors import UsageError
from keyhouse.layout import find_layouts

__all__ = ["file_of", "make_folder", "url_of"]

PLACEHOLDER: Final = "{system}"


def file_of(system: str, data: Path) -> str:
    """Return the default URL: a SQLite file in the data folder."""
    return url_of(system, f"sqlite:{data / system}.db", alone=True)


def url_of(system: str, url: str, *, alone: bool) -> str:
    """Return the engine URL of one system.

    `alone`: the URL is for this system only, so it may name the layout or bucket itself. For
    several systems that raises UsageError, because they would share it.
    """
    if PLACEHOLDER in url:
        return url.replace(PLACEHOLDER, system)
    match url.partition(":")[0]:
        case "sqlite" | "postgres" | "postgresql":
            return _with_parameters(url, {"layout": system}, {"layout"}, alone)
        case "nats" | "tls":
            layout = find_layouts(system).jetstream
            names = {"bucket": system}
            if layout is not None and layout.bucket_per_space:
                names = {"prefix": layout.prefix}
            return _with_parameters(url, names, {"bucket", "prefix"}, alone)
        case "rocksdb":
            return f"{url.rstrip('/')}/{system}"
        case "dynamodb":
            table = urlsplit(url).netloc
            return _with_parameters(
                url.replace(f"//{table}", f"//{table}-{system}", 1),
                {"layout": system},
                set(),
                alone,
            )
        case _:
            return url


def make_folder(url: str) -> None:
    """Create the parent folder of RocksDB stores: an engine creates only its own folder.

    Errors are ignored; opening the engine reports them.
    """
    scheme, _, rest = url.partition(":")
    folder = rest.removeprefix("///")
    if scheme == "rocksdb" and PLACEHOLDER not in url and not folder.startswith("//"):
        with suppress(OSError):
            Path(folder).mkdir(exist_ok=True)


def _with_parameters(url: str, names: dict[str, str], exclusive: set[str], alone: bool) -> str:
    front, mark, query = url.partition("?")
    given = parse_qsl(query, keep_blank_values=True)
    set_names = {name for name, _ in given} & (exclusive or set(names))
    if set_names and not alone and exclusive:
        raise UsageError(
            "The engine URL is shared by several systems; put {system} in it, or set one per"
            " system.",
            url=public_url(url),
            parameters=sorted(set_names),
        )
    if set_names:
        return url
    added = urlencode(names)
    return f"{front}?{query}&{added}" if mark and query else f"{front}?{added}"
