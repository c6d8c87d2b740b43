"""A route at its place in an app: what must hold before its handler is called, and how what it returns is sent."""

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import Any, Protocol

import msgspec

from keyhouse.auth.caller import Authenticator, Caller
from keyhouse.errors import DeclarationError
from keyhouse.http.content_negotiation import check_accepted
from keyhouse.http.csrf import check_csrf
from keyhouse.http.preconditions import NONE, Conditions
from keyhouse.http.request import Request
from keyhouse.http.response import ANYTHING, JSON, Response
from keyhouse.http.route import Route
from keyhouse.http.settings import HttpSettings
from keyhouse.http.signature import NOTHING, Binding, request_conditions
from keyhouse.limits import HTTP_BODY_BYTES_PER_REQUEST
from keyhouse.service.rates import RateLimiter

Headers = list[tuple[bytes, bytes]]

encode = msgspec.json.Encoder().encode
_JSON_TYPE = (b"content-type", b"application/json")
_PRIVATE = (b"cache-control", b"private, no-cache")


Remembered = Callable[[Mapping[bytes, bytes]], Caller | None]
"""Who was recognised at once by headers of which none came twice; None: it takes longer to tell."""


def _nobody(headers: Mapping[bytes, bytes]) -> None:
    return None


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


class Answer(msgspec.Struct):
    """What is sent: all that the server needs, and nothing of where it came from. Its headers are its own list."""

    status: int
    headers: Headers
    body: bytes | AsyncIterator[bytes] = b""


class Options:
    """What answers OPTIONS at an address: the methods that it takes."""

    __slots__ = ("allow", "template")

    def __init__(self, by_method: Mapping[str, "Endpoint"]) -> None:
        self.allow = ", ".join([*by_method, *(["HEAD"] if "GET" in by_method else []), "OPTIONS"])
        self.template = next(iter(by_method.values())).template

    async def run(self, request: Request, values: Sequence[str]) -> Answer:
        return Answer(204, [(b"allow", self.allow.encode())])


class Endpoint:
    __slots__ = (
        "_auth",
        "_gives",
        "_has_body",
        "_headers",
        "_origins",
        "_private",
        "_rates",
        "_remembered",
        "_scope",
        "binding",
        "route",
        "template",
    )

    def __init__(
        self, route: Route, section: Section | None, prefix: str, settings: HttpSettings
    ) -> None:
        self.route = route
        self.template = prefix + route.path
        self.binding = Binding(
            route,
            body_bytes_max=settings.body_bytes_max,
            body_seconds_max=settings.body_seconds_max,
        )
        self._auth = section.auth if section is not None and route.scope is not None else None
        self._rates = section.rates if section is not None else None
        self._scope = route.scope or ""
        self._remembered: Remembered = getattr(self._auth, "cached_caller", _nobody)
        if route.scope is not None and self._auth is None:
            raise DeclarationError(
                "A route has a scope, and its system no way to tell who asks.", path=self.template
            )
        self._origins = frozenset(settings.origins)
        replies = self.binding.signature.replies
        self._gives = next(
            (each.media_type for each in replies.values() if each.type is not NOTHING), JSON
        )
        self._has_body = self.binding.signature.has_body
        self._private = self._auth is not None
        self._headers = (_JSON_TYPE, _PRIVATE) if self._private else (_JSON_TYPE,)

    async def run(self, request: Request, values: Sequence[str]) -> Answer:
        caller, sent = None, request.headers
        if self._auth is not None:
            if len(sent) == len(request.pairs):
                caller = self._remembered(sent)
            if caller is None:
                caller = await self._auth.authenticate(request.pairs)
            if self._scope not in caller.scopes:
                caller.must(self._scope)
            if caller.ambient:
                check_csrf(request, self._origins)
            if self._rates is not None:
                self._rates.check(caller.tenant, self._cost(sent) if self._has_body else 1)
        accept = sent.get(b"accept")
        if accept is not None and accept != b"*/*" and self._gives is not ANYTHING:
            check_accepted(accept.decode("latin-1"), self._gives)
        given = (
            request_conditions(request) if b"if-match" in sent or b"if-none-match" in sent else NONE
        )
        arguments = self.binding.arguments(request, values, caller, given)
        if self._has_body:
            arguments["body"] = await self.binding.body(request)
        value = await self.route.handler(**arguments)
        if type(value) is Response:
            return self._of_reply(value, given)
        if value is None:
            return Answer(204, [])
        return Answer(200, [*self._headers], encode(value))

    def _cost(self, sent: Mapping[bytes, bytes]) -> int:
        """For how many requests it counts, told before its body is read. One that does not say its length may have any."""
        most, length = self.binding.body_bytes_max, sent.get(b"content-length")
        if length is None:
            size = most if b"transfer-encoding" in sent else 0
        else:
            size = (
                min(int(length), most) if length.isdigit() and len(length) < 19 else 0
            )  # what is refused costs little
        return 1 + size // HTTP_BODY_BYTES_PER_REQUEST

    def _of_reply(self, reply: Response[Any], given: Conditions) -> Answer:
        headers: Headers = [_PRIVATE] if self._private else []
        if reply.headers:
            told = [
                (name.lower().encode("latin-1"), text.encode("latin-1"))
                for name, text in reply.headers
            ]
            headers = told if any(name == b"cache-control" for name, _ in told) else headers + told
        if reply.etag is not None:
            headers.append((b"etag", reply.etag.encode("latin-1")))
            if given is not NONE and self.route.method == "GET" and given.unchanged(reply.etag):
                return Answer(304, headers)
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
