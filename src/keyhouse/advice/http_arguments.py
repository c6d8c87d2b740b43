"""Arguments of programs that reach a service over HTTP: its URL, and a token."""

from typing import Final
from urllib.parse import urlsplit

from keyhouse.errors import UsageError

__all__ = ["TENANT_CLAIMS", "authorization", "service_url"]

TENANT_CLAIMS: Final = ("customerId", "userId", "sub")
"""Claims of a token that name its tenant, by default: the first that it has."""


def authorization(token: str, scheme: str = "Bearer") -> str:
    """Return the value of the header that carries a token. Raises UsageError for text that no
    header can carry; it does not repeat the token."""
    if token.isascii() and token.isprintable() and token and " " not in token:
        return f"{scheme} {token}"
    if not token.strip():
        reason = "it is empty"
    elif "\n" in token or "\r" in token:
        reason = "it has a line break: remove it, as `token.strip()` does"
    else:
        reason = "it has characters that no token has"
    advice = ": `keyhouse token` makes one" if scheme == "Bearer" else ""
    raise UsageError(f"Invalid token{advice}.", reason=reason)


def service_url(url: str, mount: str) -> str:
    """Return the URL of a system's API: below `mount`, where `keyhouse serve` has it, unless the
    URL has a path. Raises UsageError for text that is not a URL of HTTP; it may have a password,
    and is not repeated."""
    if not url.startswith(("http://", "https://")):
        raise UsageError("This service is reached over HTTP: --store http://host:8080.")
    try:
        parts = urlsplit(url)
        is_valid = bool(parts.hostname) and parts.port != 0 and not parts.query + parts.fragment
    except ValueError:  # an invalid port, an unclosed bracket
        is_valid = False
    if not is_valid:
        raise UsageError("Invalid URL of the service: write it as in http://host:8080.")
    return url if parts.path.strip("/") else url.rstrip("/") + mount
