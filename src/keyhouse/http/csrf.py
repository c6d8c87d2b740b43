"""Requests that another site's page makes with a visitor's cookie (CSRF): told by what the browser says of them.

Browsers say where a request comes from in `Sec-Fetch-Site` and `Origin`, and a page can't change either. A request that
has neither comes from no browser of this decade, and so carries no cookie that its sender does not own.
"""

from keyhouse.errors import AccessError
from keyhouse.http.request import Request

SAFE = frozenset({"GET", "HEAD", "OPTIONS"})


def check_csrf(request: Request, allowed: frozenset[str]) -> None:
    """Refuse what would change something, was sent with a cookie, and comes from a page that is not allowed: AccessError."""
    if request.method in SAFE:
        return
    origin = request.header(b"origin")
    if origin is not None and origin in allowed:
        return
    site = request.header(b"sec-fetch-site")
    if site is not None:
        ours = site in ("same-origin", "none")
    else:
        ours = origin is None or origin.partition("://")[2] == request.header(b"host")
    if not ours:
        raise AccessError(
            "A page of another site sent this with a cookie: use a bearer token, or allow its origin."
        )
