"""Where each system's rows are: one URL for all of them, and a table, folder or bucket of its own for each.

`{system}` in the URL stands for the system's name, and then it says all. Without it, what the engine has to tell stores
apart is set to the system's name, so that spaces of two systems never meet:

    sqlite:, postgresql:  layout=<system>: tables of its own, for rosey the one that its document names
    rocksdb:folder        folder/<system>
    nats:                 bucket=<system>: a bucket for all its spaces; playlist's spaces are buckets, prefix= says so
    dynamodb://table      the tables table-<system>, with layout=<system>
    memory:               an engine for each
"""

from contextlib import suppress
from pathlib import Path
from typing import Final
from urllib.parse import parse_qsl, urlencode, urlsplit

from keyhouse.engines.url import public_url
from keyhouse.errors import UsageError
from keyhouse.layout import find_layouts

__all__ = ["file_of", "make_folder", "url_of"]

PLACE: Final = "{system}"


def file_of(system: str, data: Path) -> str:
    """The default: a SQLite file in the data folder."""
    return url_of(system, f"sqlite:{data / system}.db", alone=True)


def url_of(system: str, url: str, *, alone: bool) -> str:
    """The engine of one system, from the URL for all. `alone`: the URL is for this system only, so that it may name itself
    the layout or the bucket; for several that is refused, because they would share it."""
    if PLACE in url:
        return url.replace(PLACE, system)
    match url.partition(":")[0]:
        case "sqlite" | "postgres" | "postgresql":
            return _with(url, {"layout": system}, {"layout"}, alone)
        case "nats" | "tls":
            layout = find_layouts(system).jetstream
            names = {"bucket": system}
            if layout is not None and layout.bucket_per_space:
                names = {"prefix": layout.prefix}
            return _with(url, names, {"bucket", "prefix"}, alone)
        case "rocksdb":
            return f"{url.rstrip('/')}/{system}"
        case "dynamodb":
            table = urlsplit(url).netloc
            return _with(
                url.replace(f"//{table}", f"//{table}-{system}", 1),
                {"layout": system},
                set(),
                alone,
            )
        case _:
            return url


def make_folder(url: str) -> None:
    """The one that a URL for all names, where each system has a folder of its own within it: an engine makes its own, and
    no folder around that. What can't be made, the engine says."""
    scheme, _, rest = url.partition(":")
    folder = rest.removeprefix("///")
    if scheme == "rocksdb" and PLACE not in url and not folder.startswith("//"):
        with suppress(OSError):
            Path(folder).mkdir(exist_ok=True)


def _with(url: str, names: dict[str, str], telling: set[str], alone: bool) -> str:
    front, mark, query = url.partition("?")
    given = parse_qsl(query, keep_blank_values=True)
    said = {name for name, _ in given} & (telling or set(names))
    if said and not alone and telling:
        raise UsageError(
            "The engine's URL names one place for several systems: put {system} in it, or give each its own engine.",
            url=public_url(url),
            said=sorted(said),
        )
    if said:
        return url
    added = urlencode(names)
    return f"{front}?{query}&{added}" if mark and query else f"{front}?{added}"
