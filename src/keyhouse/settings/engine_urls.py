"""Engine URLs per system, from one URL for all: each system gets its own table, folder or bucket.

`{system}` in the URL is replaced by the system's name. Without it, the part of the URL that
separates stores is set to the system's name, so that two systems never share spaces:

    sqlite:, postgresql:  layout=<system>: the system's own tables
    rocksdb:folder        folder/<system>
    nats:                 bucket=<system>, or prefix= if the system's spaces are buckets
    dynamodb://table      the tables table-<system>, with layout=<system>; if the URL is for this
                          system only and names a layout, the tables as they are named
    memory:               one engine per system

`nats:` without a host is the service's own NATS server, embedded or given; the service replaces it
by the address (`with_server`) once that server runs.
"""

from contextlib import suppress
from pathlib import Path
from typing import Final
from urllib.parse import parse_qsl, urlencode

from keyhouse.engines.url import public_url
from keyhouse.errors import UsageError
from keyhouse.layout import find_layouts
from keyhouse.nats.embedded_users import BUCKETS_USER, embedded_url

__all__ = [
    "default_url",
    "embedded_server",
    "is_own_nats",
    "is_server",
    "make_folder",
    "url_of",
    "with_server",
]

PLACEHOLDER: Final = "{system}"


def default_url(system: str, data: Path) -> str:
    """Return the URL used when none is set: the one that the system declares, or a SQLite file in
    the data folder."""
    declared = find_layouts(system).default_engine
    return url_of(system, declared or f"sqlite:{data / system}.db", alone=True)


def is_own_nats(url: str) -> bool:
    """Return whether the rows are on the NATS server of the service itself."""
    return url.startswith("nats:") and not url.startswith("nats://")


def is_server(url: str) -> bool:
    """Return whether the rows are on a server that other hosts reach too, and the URL leaves it to
    each system which rows are its own."""
    scheme, _, rest = url.partition(":")
    named = {name for name, _ in parse_qsl(url.partition("?")[2])} & {"layout", "bucket", "prefix"}
    is_remote = scheme in ("dynamodb", "nats", "postgres", "postgresql", "tls")
    return is_remote and rest.startswith("//") and (PLACEHOLDER in url or not named)


def with_server(url: str, servers: str, **parameters: str) -> str:
    """Return the URL of rows on the service's own server, which now runs at `servers` (several are
    separated by commas). `parameters` are added unless the URL sets them."""
    first, *others = [each.strip().rstrip("/") for each in servers.split(",")]
    hosts = [first, *(each.rpartition("/")[2].rpartition("@")[2] for each in others)]
    rest = url.removeprefix("nats:").lstrip("/")
    url_options = dict(parse_qsl(rest.partition("?")[2], keep_blank_values=True))
    return f"{','.join(hosts)}/?{urlencode(parameters | url_options)}"


def embedded_server(data: Path) -> str:
    """Return the address of the embedded NATS server of a data folder, from its configuration.

    Raises UsageError if none was ever started there.
    """
    url = embedded_url(data, BUCKETS_USER)
    if url is None:
        raise UsageError(
            "The rows are on the service's embedded NATS server, and none has run with this data"
            " folder: start `keyhouse serve` with it, or name another folder or store.",
            data=str(data),
        )
    return url


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
            folder, mark, query = url.partition("?")
            return f"{folder.rstrip('/')}/{system}{mark}{query}"
        case "dynamodb":
            front, mark, query = url.partition("?")
            if alone and "layout" in dict(parse_qsl(query)):
                return url
            return _with_parameters(
                f"{front.rstrip('/')}-{system}{mark}{query}",
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
    folder = rest.partition("?")[0].removeprefix("///")
    if scheme == "rocksdb" and PLACEHOLDER not in url and not folder.startswith("//"):
        with suppress(OSError):
            Path(folder).mkdir(0o700, exist_ok=True)


def _with_parameters(url: str, names: dict[str, str], exclusive: set[str], alone: bool) -> str:
    front, mark, query = url.partition("?")
    url_options = parse_qsl(query, keep_blank_values=True)
    set_names = {name for name, _ in url_options} & (exclusive or set(names))
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
