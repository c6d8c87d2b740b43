"""A route at its place in an app: what must hold before its handler is called, and how what it returns is sent."""

from collections.abc import AsyncIterator, Sequence
from typing import Any, Protocol

import msgspec

from keyhouse.errors import DeclarationError
from keyhouse.serve.auth.caller import Authenticator
from keyhouse.serve.http.binding import NOTHING, Binding, request_conditions
from keyhouse.serve.http.media import check_accepted
from keyhouse.serve.http.origin import check_origin
from keyhouse.serve.http.reply import ANYTHING, JSON, Reply
from keyhouse.serve.http.request import Request
from keyhouse.serve.http.route import Route
from keyhouse.serve.http.settings import HttpSettings
from keyhouse.serve.rates import RateLimiter

Headers = list[tuple[bytes, bytes]]

encode = msgspec.json.Encoder().encode
_JSON_TYPE = (b"content-type", b"application/json")
_PRIVATE = (b"cache-control", b"private, no-cache")


class Section(Protocol):
    """What the face needs to know of a system's part."""

    @property
    def name(self) -> str: ...
    @property
    def title(self) -> str: ...
    @property
    def about(self) -> str: ...
    @property
    def routes(self) -> Sequence[Route]: ...
    @property
    def auth(self) -> Authenticator | None: ...
    @property
    def rates(self) -> RateLimiter | None: ...


class Answer:
    """What is sent: all that the server needs, and nothing of where it came from."""

    __slots__ = ("body", "headers", "status")

    def __init__(self, status: int, headers: Headers, body: bytes | AsyncIterator[bytes] = b"") -> None:
        self.status = status
        self.headers = headers
        self.body = body


class Endpoint:
    __slots__ = ("_auth", "_gives", "_origins", "_private", "_rates", "binding", "route", "template")

    def __init__(self, route: Route, section: Section | None, prefix: str, settings: HttpSettings) -> None:
        self.route = route
        self.template = prefix + route.path
        self.binding = Binding(
            route, body_bytes_max=settings.body_bytes_max, body_seconds_max=settings.body_seconds_max
        )
        self._auth = section.auth if section is not None and route.scope is not None else None
        self._rates = section.rates if section is not None else None
        if route.scope is not None and self._auth is None:
            raise DeclarationError("A route has a scope, and its system no way to tell who asks.", path=self.template)
        self._origins = frozenset(settings.origins)
        replies = self.binding.taken.replies
        self._gives = next((each.media_type for each in replies.values() if each.type is not NOTHING), JSON)
        self._private = self._auth is not None

    async def run(self, request: Request, values: list[str]) -> Answer:
        caller = None
        if self._auth is not None:
            caller = await self._auth.authenticate(request.pairs)
            caller.must(self.route.scope or "")
            if caller.ambient:
                check_origin(request, self._origins)
            if self._rates is not None:
                self._rates.check(caller.tenant)
        if (accept := request.header(b"accept")) is not None and self._gives is not ANYTHING:
            check_accepted(accept, self._gives)
        given = request_conditions(request)
        value = await self.binding.call(request, values, caller, given)
        if type(value) is not Reply:
            if value is None:
                return Answer(204, [])
            headers = [_JSON_TYPE, _PRIVATE] if self._private else [_JSON_TYPE]
            return Answer(200, headers, encode(value))
        answer = self._of_reply(value)
        if value.etag is not None and self.route.method == "GET" and given.unchanged(value.etag):
            return Answer(304, [pair for pair in answer.headers if pair[0] != b"content-type"])
        return answer

    def _of_reply(self, reply: Reply[Any]) -> Answer:
        headers: Headers = [_PRIVATE] if self._private else []
        if reply.headers:
            given = [(name.lower().encode("latin-1"), text.encode("latin-1")) for name, text in reply.headers]
            headers = given if any(name == b"cache-control" for name, _ in given) else headers + given
        if reply.etag is not None:
            headers.append((b"etag", reply.etag.encode("latin-1")))
        body = reply.body
        if body is None:
            return Answer(reply.status, headers)
        if reply.media_type is JSON:
            headers.append(_JSON_TYPE)
        else:
            headers.append((b"content-type", reply.media_type.encode("latin-1")))
        if not isinstance(body, bytes) and not hasattr(body, "__aiter__"):
            body = encode(body)
        return Answer(reply.status, headers, body)
