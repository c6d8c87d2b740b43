"""Cookies that carry credentials: never readable by scripts, never sent along by other sites."""

import re
from typing import Literal

from keyhouse.errors import UsageError
from keyhouse.http.client_address import ClientAddress

__all__ = ["delete_cookie", "set_cookie"]

_NAME = re.compile(r"[A-Za-z0-9_.-]{1,64}")
_VALUE = re.compile(r"[A-Za-z0-9_.~+/=-]{0,4096}")
_PATH = re.compile(r"/[A-Za-z0-9_./~-]*")


def set_cookie(
    name: str,
    value: str,
    client: ClientAddress,
    *,
    path: str = "/",
    max_age_seconds: int | None = None,
    same_site: Literal["Lax", "Strict"] = "Lax",
) -> tuple[str, str]:
    """Return the header that sets a cookie: HttpOnly, and Secure if the client uses https.

    Without `max_age_seconds` it lasts until the browser is closed. Raises UsageError if a part is
    not valid in a cookie.
    """
    for text, pattern in ((name, _NAME), (value, _VALUE), (path, _PATH)):
        if not pattern.fullmatch(text):
            raise UsageError("This is not valid in a cookie.", cookie=name)
    parts = [f"{name}={value}", f"Path={path}", "HttpOnly", f"SameSite={same_site}"]
    if client.is_https:
        parts.append("Secure")
    if max_age_seconds is not None:
        parts.append(f"Max-Age={max_age_seconds}")
    return "Set-Cookie", "; ".join(parts)


def delete_cookie(name: str, client: ClientAddress, *, path: str = "/") -> tuple[str, str]:
    """Return the header that deletes a cookie, at sign-out."""
    return set_cookie(name, "", client, path=path, max_age_seconds=0)
