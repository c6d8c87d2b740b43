"""Settings of the engine, given or parsed from a URL.

Credentials are never in a URL: they come from the environment, as for every AWS tool, or from the
caller.
"""

from urllib.parse import parse_qsl, urlsplit

import msgspec

from keyhouse.advice.nearest import nearest
from keyhouse.engines.dynamodb.layout import Layout, layout_of
from keyhouse.engines.url import public_url
from keyhouse.errors import UsageError

_INVALID_URL = (
    "Invalid DynamoDB URL; write dynamodb://table?region=eu-west-1, optionally with"
    " endpoint=http://host:port, layout=NAME, create=false"
)
OPTIONS = {"region", "endpoint", "layout", "create"}


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """None means: taken from the environment (`AWS_DEFAULT_REGION`, `AWS_ENDPOINT_URL`, …).

    `create`: create missing tables. `native_ttl`: let DynamoDB delete expired rows, a day late; it
    uses the real time, so an engine with another clock turns it off.
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
        try:
            parts = urlsplit(url)
        except ValueError:  # an unclosed bracket
            raise UsageError(_INVALID_URL, url=public_url(url)) from None
        options = dict(parse_qsl(parts.query, keep_blank_values=True))
        unknown = sorted(options.keys() - OPTIONS)
        table = parts.netloc
        if not table or parts.path.strip("/") or "@" in table or ":" in table or unknown:
            misspelled = nearest(unknown[0], OPTIONS) if unknown else {}
            raise UsageError(_INVALID_URL, url=public_url(url), unknown=unknown, **misspelled)
        if options.get("create", "true") not in ("true", "false"):
            raise UsageError(
                "Invalid value of create in the DynamoDB URL; write true or false.",
                url=public_url(url),
            )
        if "endpoint" in options and not _is_address(options["endpoint"]):
            raise UsageError(
                "Invalid endpoint in the DynamoDB URL; write http://host:port or https://host",
                url=public_url(url),
            )
        return Settings(
            table=table,
            region=options.get("region"),
            endpoint=options.get("endpoint"),
            layout=layout_of(options.get("layout", "")),
            create=options.get("create", "true") == "true",
        )


def _is_address(text: str) -> bool:
    try:
        parts = urlsplit(text)
        return parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:  # an invalid port, an unclosed bracket
        return False
