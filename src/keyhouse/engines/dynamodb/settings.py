"""Where the tables are: given, or read from a URL. Credentials are never in a URL: they come from the environment, as for
every AWS tool, or are given."""

from urllib.parse import parse_qsl, urlsplit

import msgspec

from keyhouse.engines.dynamodb.layout import Layout, layout_of
from keyhouse.engines.url import public_url
from keyhouse.errors import UsageError

_SHAPE = "A DynamoDB URL names a table: dynamodb://table?region=eu-west-1&endpoint=http://host:port&layout=history&create=false"
_KNOWN = {"region", "endpoint", "layout", "create"}


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """What is `None` comes from the environment (`AWS_DEFAULT_REGION`, `AWS_ENDPOINT_URL`, `AWS_ACCESS_KEY_ID`, …).

    `create`: make the tables when they are not there. `native_ttl`: let DynamoDB collect, a day late, what has expired; it
    goes by the time of day, so an engine with another clock turns it off.
    """

    table: str
    region: str | None = None
    endpoint: str | None = None
    layout: Layout = Layout()
    create: bool = True
    native_ttl: bool = True
    access_key_id: str | None = None
    secret_access_key: str | None = None

    @staticmethod
    def of(url: str) -> "Settings":
        parts = urlsplit(url)
        given = dict(parse_qsl(parts.query, keep_blank_values=True))
        unknown = sorted(given.keys() - _KNOWN)
        table = parts.netloc
        if not table or parts.path.strip("/") or "@" in table or ":" in table or unknown:
            raise UsageError(_SHAPE, url=public_url(url), unknown=unknown)
        if given.get("create", "true") not in ("true", "false"):
            raise UsageError("In a DynamoDB URL, create is true or false.", url=public_url(url))
        if "endpoint" in given and not _is_address(given["endpoint"]):
            raise UsageError(
                "The endpoint of a DynamoDB URL is an address: endpoint=http://host:port, or https://host",
                url=public_url(url),
            )
        return Settings(
            table=table,
            region=given.get("region"),
            endpoint=given.get("endpoint"),
            layout=layout_of(given.get("layout", "")),
            create=given.get("create", "true") == "true",
        )


def _is_address(text: str) -> bool:
    try:
        parts = urlsplit(text)
        return parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:  # a port that is none, a bracket that is not closed
        return False
