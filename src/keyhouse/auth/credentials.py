"""Where a token stands in a request: in the cookie, else behind `Authorization: Bearer`.

What could be read in two ways is refused: two cookies of the name, two headers, a cookie and a header that differ.
"""

from keyhouse.auth.caller import HeaderPairs
from keyhouse.errors import TokenError
from keyhouse.limits import TOKEN_BYTES_MAX


class Credentials:
    __slots__ = ("_cookie",)

    def __init__(self, cookie: str) -> None:
        self._cookie = cookie.encode() + b"="

    def find(self, headers: HeaderPairs) -> tuple[bytes, bool]:
        """The token, and whether a cookie brought it; TokenError when there is none, or more than one."""
        once = dict(headers)
        bearer = once.get(b"authorization")
        if bearer is None or b"cookie" in once or len(once) != len(headers):
            return self._chosen(headers)
        return _checked(
            _of_bearer(bearer)
        ), False  # nothing came twice, so there is one way to read it

    def _chosen(self, headers: HeaderPairs) -> tuple[bytes, bool]:
        cookies: list[bytes] = []
        bearers: list[bytes] = []
        for name, value in headers:
            if name == b"authorization":
                bearers += _of_bearer(value)
            elif name == b"cookie" and self._cookie in value:
                cookies += self._of_cookie(value)
        found = cookies or bearers
        if len(cookies) > 1 or len(bearers) > 1 or (bearers and bearers != found):
            raise TokenError("There is more than one token: send one.")
        return _checked(found), bool(cookies)

    def _of_cookie(self, header: bytes) -> list[bytes]:
        start = self._cookie
        return [
            part.removeprefix(start)
            for each in header.split(b";")
            if (part := each.strip()).startswith(start)
        ]


def _of_bearer(header: bytes) -> list[bytes]:
    """Another scheme is no token: it is meant for somebody on the way."""
    scheme, _, token = header.partition(b" ")
    return [token.strip()] if scheme.lower() == b"bearer" else []


def _checked(found: list[bytes]) -> bytes:
    if not found:
        raise TokenError("There is no token: send one as a bearer token, or in the cookie.")
    if len(found[0]) > TOKEN_BYTES_MAX:
        raise TokenError("The token is too long.", limit=TOKEN_BYTES_MAX)
    return found[0]
