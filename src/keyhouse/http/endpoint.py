"""A request, and the route bound to its service that runs it: checks, arguments, the call of the
handler, and its response.

Handlers do not see the request.
"""

import asyncio
import re
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Protocol
from urllib.parse import quote

from keyhouse.auth.caller import Authenticator, Caller, HeaderPairs
from keyhouse.errors import DeclarationError, LimitError, RateError, TokenError, UsageError
from keyhouse.http.client_address import ClientAddress, TrustedProxies, trusted_proxies
from keyhouse.http.content_negotiation import check_accepted, check_json
from keyhouse.http.cross_origin import check_csrf
from keyhouse.http.errors import PROBLEM, ErrorFormat, SlowError
from keyhouse.http.event_stream import CredentialsCheck, EventStream, TenantStreams
from keyhouse.http.forms import FormReader
from keyhouse.http.limits import (
    HTTP_BODY_BYTES_PER_REQUEST,
    RATE_DELAY_SECONDS,
    REQUEST_ID_CHARS_MAX,
)
from keyhouse.http.preconditions import NO_CONDITIONS, Conditions, conditions
from keyhouse.http.read_meter import read_meter
from keyhouse.http.response import (
    ANYTHING,
    BYTES_TYPES,
    JSON,
    EncodedResponse,
    FixedHeaders,
    Headers,
    Responder,
    Response,
    encode,
)
from keyhouse.http.router import Route
from keyhouse.http.settings import HttpSettings
from keyhouse.http.signature import (
    NONE_TYPE,
    Parameters,
    body_decoder,
    body_values_max,
    convert_field,
    handler_signature,
    is_open,
    known_values,
    pattern_test,
    query_pairs,
)
from keyhouse.requests.json_checks import check_request, request_checks
from keyhouse.scheduling.eager_task import Started
from keyhouse.scheduling.turns import Places

_LENGTH_DIGITS_MAX = 18
"""A Content-Length of more digits is larger than any limit, and costs time to parse."""

_JSON_TYPE = (b"content-type", b"application/json")
_PRIVATE = (b"cache-control", b"private, no-cache")
_JSON_HEADERS = FixedHeaders(_JSON_TYPE)
_PRIVATE_JSON_HEADERS = FixedHeaders(_PRIVATE, _JSON_TYPE)
_CHECKED_AT_ONCE_BYTES = 256 * 1_024
_VALID_ID = re.compile(rb"[A-Za-z0-9][A-Za-z0-9._:/+=-]{0,%d}" % (REQUEST_ID_CHARS_MAX - 1))


class RateLimit(Protocol):
    def check(self, tenant: str, cost: int = 1) -> None:
        """Raise RateError if the tenant has made too many requests."""
        ...

    def spend_read(self, tenant: str, rows: int, size: int) -> None:
        """Count a long read towards the tenant's rate."""
        ...


class Section(Protocol):
    """The parts of a service that the HTTP layer needs; it is mounted below `/<name>`."""

    @property
    def name(self) -> str: ...
    @property
    def title(self) -> str: ...
    @property
    def about(self) -> str: ...
    @property
    def license(self) -> str: ...
    @property
    def version(self) -> str: ...
    @property
    def examples(self) -> Sequence[str]: ...
    @property
    def routes(self) -> Sequence[Route]: ...
    @property
    def auth(self) -> Authenticator | None: ...
    @property
    def rates(self) -> RateLimit | None: ...
    @property
    def address_rates(self) -> RateLimit | None: ...
    @property
    def error_format(self) -> ErrorFormat: ...


class DisconnectedError(Exception):
    """The client disconnected before its request was complete: nothing is sent."""


class HttpRequest:
    __slots__ = ("_receive", "_scope", "headers", "id", "method", "pairs", "query", "raw_path")

    def __init__(self, scope: Any, receive: Any, new_id: str) -> None:
        self._scope = scope
        self._receive = receive
        self.method: str = scope["method"]
        self.pairs: HeaderPairs = scope["headers"]
        self.headers: dict[bytes, bytes] = dict(self.pairs)
        self.query: bytes = scope["query_string"]
        raw = scope.get("raw_path")
        if not raw or b"?" in raw or scope.get("root_path"):
            raw = _path(scope)
        self.raw_path: bytes = raw
        self.id = new_id
        if b"x-request-id" in self.headers:
            self.id = _requested_id(self.headers[b"x-request-id"], new_id)

    @property
    def root(self) -> str:
        """The path that the app is mounted below, or ""."""
        root: str = self._scope.get("root_path", "")
        return root

    def client(self, proxies: TrustedProxies) -> ClientAddress:
        """Return the address of the client, as far as the proxies are trusted."""
        return proxies.client(self._scope, self.headers)

    def header(self, name: bytes) -> str | None:
        value = self.headers.get(name)
        return None if value is None else value.decode("latin-1")

    async def body(self, bytes_max: int, timeout_seconds: float) -> bytes:
        """Read the body. Raises LimitError as soon as it is known to be too large."""
        declared = self.headers.get(b"content-length")
        if declared is not None:
            if not declared.isdigit():
                raise UsageError("Content-Length must be a number.")
            if len(declared) > _LENGTH_DIGITS_MAX or int(declared) > bytes_max:
                raise _too_large(bytes_max)
        deadline: float | None = None
        pieces, size = [], 0
        while True:
            receiving = Started(self._receive())
            if receiving.is_done:  # most bodies have arrived with their head, and need no timer
                message = receiving.result
            else:
                if deadline is None:
                    deadline = asyncio.get_running_loop().time() + timeout_seconds
                message = await _received(receiving, deadline)
            if message["type"] != "http.request":
                raise DisconnectedError
            piece: bytes = message.get("body", b"")
            size += len(piece)
            if size > bytes_max:
                raise _too_large(bytes_max)
            pieces.append(piece)
            if not message.get("more_body", False):
                return piece if len(pieces) == 1 else b"".join(pieces)


class OptionsEndpoint:
    """Answers OPTIONS with the methods of a path."""

    __slots__ = ("allow", "error_format", "realm", "template")

    def __init__(self, by_method: Mapping[str, "HttpEndpoint"]) -> None:
        first = next(iter(by_method.values()))
        self.allow = ", ".join([*by_method, *(["HEAD"] if "GET" in by_method else []), "OPTIONS"])
        self.template = first.template
        self.error_format = first.error_format
        self.realm = first.realm

    async def run(self, request: HttpRequest, values: Sequence[str]) -> EncodedResponse:
        return EncodedResponse(204, [(b"allow", self.allow.encode())])


class HttpEndpoint:
    """Runs one route. `template` is its path with prefix: the label of its metrics."""

    __slots__ = (
        "_address_rates",
        "_auth",
        "_body_bytes_max",
        "_body_name",
        "_body_timeout_seconds",
        "_cookie_origins",
        "_decode_body",
        "_form",
        "_handler",
        "_has_body",
        "_headers",
        "_json_headers",
        "_media_type",
        "_names",
        "_places",
        "_proxies",
        "_query",
        "_rates",
        "_scope",
        "_streams",
        "_takes_caller",
        "_takes_more",
        "converted",
        "error_format",
        "realm",
        "route",
        "signature",
        "template",
    )

    def __init__(
        self,
        route: Route,
        section: Section | None,
        prefix: str,
        settings: HttpSettings,
        places: Places,
        streams: TenantStreams,
    ) -> None:
        self.route = route
        self._places = places
        self._streams = streams
        self.template = prefix + route.path
        self.error_format = PROBLEM if section is None else section.error_format
        self.realm = "keyhouse" if section is None else section.name
        self._handler = route.handler
        self._auth = section.auth if section is not None and route.scope is not None else None
        self._rates = section.rates if section is not None else None
        self._address_rates = section.address_rates if section is not None else None
        self._proxies = trusted_proxies(settings.proxies)
        self._scope = route.scope or ""
        if route.scope is not None and self._auth is None:
            raise DeclarationError(
                "A route has a scope, but its service has no authenticator.", path=self.template
            )
        self._cookie_origins = frozenset(settings.cors_origins if settings.credentials else ())
        self.signature = signature = handler_signature(route)
        self._has_body = signature.has_body
        self._takes_caller = signature.caller
        self._names = tuple(signature.path)
        self.converted = [
            (name, kind, known_values(kind), pattern_test(kind))
            for name, kind in signature.path.items()
            if kind is not str
        ]
        self._query = None if signature.query is None else Parameters(signature.query, "parameter")
        self._headers = (
            None if signature.headers is None else Parameters(signature.headers, "header")
        )
        self._takes_more = (
            signature.headers is not None
            or signature.client
            or signature.conditions
            or signature.root
        )
        self._decode_body = body_decoder(signature.body)
        self._form = FormReader(signature.body) if signature.is_form else None
        self._body_name = "form" if signature.is_form else "body"
        self._body_bytes_max = route.body_bytes_max or settings.body_bytes_max
        self._body_timeout_seconds = settings.body_timeout_seconds
        self._media_type = next(
            (each.media_type for each in signature.replies.values() if each.type is not NONE_TYPE),
            JSON,
        )
        self._json_headers = _JSON_HEADERS if self._auth is None else _PRIVATE_JSON_HEADERS

    async def run(self, request: HttpRequest, values: Sequence[str]) -> EncodedResponse:
        caller, sent, rates = None, request.headers, self._rates
        if self._auth is not None:
            if len(sent) == len(request.pairs):
                caller = self._auth.cached_caller(sent)
            if caller is None:
                caller = await self._identify(request)
        if caller is not None:
            if self._scope not in caller.scopes and self._scope:
                caller.require(self._scope)
            if caller.from_cookie:
                check_csrf(request.method, sent, self._cookie_origins)
            if rates is not None:
                try:
                    rates.check(caller.tenant, self._cost(sent) if self._has_body else 1)
                except RateError:
                    await asyncio.sleep(RATE_DELAY_SECONDS)
                    raise
                read_meter.set(partial(rates.spend_read, caller.tenant))
        elif self._address_rates is not None:
            network = request.client(self._proxies).network
            self._address_rates.check(network, self._cost(sent) if self._has_body else 1)
        accept = sent.get(b"accept")
        if accept is not None and accept != b"*/*" and self._media_type is not ANYTHING:
            check_accepted(accept.decode("latin-1"), self._media_type)
        given = NO_CONDITIONS
        if b"if-match" in sent or b"if-none-match" in sent:
            given = conditions(_joined(request, b"if-match"), _joined(request, b"if-none-match"))
        arguments = self._arguments(request, values, caller, given)
        places = self._places
        line = None if caller is None else places.line(caller.turn or caller.tenant)
        if line is not None and not places.try_start(line):
            await places.wait_for_place(line)
        try:
            if self._has_body:
                arguments[self._body_name] = await self._body(request)
            value = await self._handler(**arguments)
        finally:
            if line is not None:
                places.leave(line)
        if type(value) is Response:
            return self._encoded(value, given)
        if value is None:
            return EncodedResponse(204, [])
        if isinstance(value, Responder):
            return await self._responded(value, request, caller)
        return EncodedResponse(200, [], encode(value), self._json_headers)

    async def _identify(self, request: HttpRequest) -> Caller | None:
        """Return the caller; None if there are no credentials and the route needs none.

        Rejected credentials count against the address: nobody may try them without a limit.
        """
        assert self._auth is not None
        try:
            return await self._auth.authenticate(request.pairs)
        except TokenError as error:
            if error.missing and is_open(self.signature, self._scope, self._auth):
                return None
            if self._address_rates is not None:
                self._address_rates.check(request.client(self._proxies).network)
            raise

    def _cost(self, sent: Mapping[bytes, bytes]) -> int:
        """Return how many requests it counts as, before its body is read.

        A request without a length may have a body of any size.
        """
        most, length = self._body_bytes_max, sent.get(b"content-length")
        if length is None:
            size = most if b"transfer-encoding" in sent else 0
        else:  # an invalid length is rejected, and costs little
            size = min(int(length), most) if length.isdigit() and len(length) < 19 else 0
        return 1 + size // HTTP_BODY_BYTES_PER_REQUEST

    # The handler's arguments

    def _arguments(
        self,
        request: HttpRequest,
        values: Sequence[str],
        caller: Caller | None,
        given: Conditions,
    ) -> dict[str, Any]:
        """Return the arguments of the handler, except the body, which may have to be awaited."""
        arguments: dict[str, Any] = dict(zip(self._names, values))  # noqa: B905  # the router's
        for name, kind, known, has_pattern in self.converted:
            text = arguments[name]
            if text in known or (has_pattern is not None and has_pattern(text)):
                continue  # it needs no conversion
            arguments[name] = convert_field(name, text, kind, known)
        if self._takes_caller:
            if caller is None and self._auth is not None:
                caller = self._auth.anonymous
            arguments["caller"] = caller
        if self._query is not None:
            arguments["query"] = self._query.read(query_pairs(request.query))
        elif request.query and not self.route.rejects:
            raise UsageError("This route takes no query parameters.")
        if self._takes_more:
            if self._headers is not None:
                arguments["headers"] = self._headers.read_headers(request.pairs, request.headers)
            if self.signature.conditions:
                arguments["conditions"] = given
            if self.signature.client:
                arguments["client"] = request.client(self._proxies)
            if self.signature.root:
                arguments["root"] = request.root
        return arguments

    async def _body(self, request: HttpRequest) -> Any:
        if self._form is not None:  # a page of another site can send one, also to sign in
            check_csrf(request.method, request.headers, self._cookie_origins)
            text = await request.body(self._body_bytes_max, self._body_timeout_seconds)
            return await self._form.read(request.header(b"content-type"), text)
        if self.signature.body is bytes:
            return await request.body(self._body_bytes_max, self._body_timeout_seconds)
        sent = request.headers
        if sent.get(b"content-type") != b"application/json" or b"content-encoding" in sent:
            check_json(request.header(b"content-type"), request.header(b"content-encoding"))
        text = await request.body(self._body_bytes_max, self._body_timeout_seconds)
        if self.route.extract_json is not None:
            text = self.route.extract_json(text)
        if len(text) <= _CHECKED_AT_ONCE_BYTES:
            check_request(text)
        else:
            for _ in request_checks(text, values_max=body_values_max(len(text))):
                await asyncio.sleep(0)
        return self._decode_body(text)

    # The response

    async def _responded(
        self, value: Responder, request: HttpRequest, caller: Caller | None
    ) -> EncodedResponse:
        if isinstance(value, EventStream):
            value = self._guarded(value, request, caller)
        response = await value.respond(request.method, request.headers)
        if self._auth is not None and not any(
            name == b"cache-control" for name, _ in response.headers
        ):
            response.headers.append(_PRIVATE)
        return response

    def _guarded(
        self, stream: EventStream, request: HttpRequest, caller: Caller | None
    ) -> EventStream:
        if caller is None or self._auth is None:
            return self._streams.limited(stream, f"address {request.client(self._proxies).network}")
        check = CredentialsCheck(self._auth, caller, self._scope, request.pairs, request.headers)
        return self._streams.limited(
            stream.while_valid(check.is_valid), caller.turn or caller.tenant
        )

    def _encoded(self, response: Response[Any], given: Conditions) -> EncodedResponse:
        body, etag = response.body, response.etag
        if (
            given is NO_CONDITIONS
            and not response.headers
            and response.media_type is JSON
            and (etag is None or type(etag) is int)
            and body is not None
        ):
            if type(body) not in BYTES_TYPES and not hasattr(body, "__aiter__"):
                body = encode(body)
            tags: Headers = [] if etag is None else [(b"etag", b'"%d"' % etag)]
            return EncodedResponse(response.status, tags, body, self._json_headers)
        headers: Headers = [] if self._auth is None else [_PRIVATE]
        if response.headers:
            own = [
                (name.lower().encode("latin-1"), text.encode("latin-1"))
                for name, text in response.headers
            ]
            headers = own if any(name == b"cache-control" for name, _ in own) else headers + own
        if response.etag is not None:
            tag = f'"{response.etag}"' if isinstance(response.etag, int) else response.etag
            headers.append((b"etag", tag.encode("latin-1")))
            if given is not NO_CONDITIONS and self.route.method == "GET" and given.unchanged(tag):
                return EncodedResponse(304, headers)
        if body is None:
            return EncodedResponse(response.status, headers)
        if response.media_type is JSON:
            headers.append(_JSON_TYPE)
        else:
            headers.append((b"content-type", response.media_type.encode("latin-1")))
        if type(body) not in BYTES_TYPES and not hasattr(body, "__aiter__"):
            body = encode(body)
        return EncodedResponse(response.status, headers, body)


async def _received(receiving: Started, deadline: float) -> Any:
    """Return the next message of a body."""
    try:
        async with asyncio.timeout_at(deadline):
            return await receiving
    except TimeoutError:
        raise SlowError("The body was not received in time.") from None


def _joined(request: HttpRequest, name: bytes) -> str | None:
    """Join a list header that is sent in several lines."""
    values = [value.decode("latin-1") for each, value in request.pairs if each == name]
    return ", ".join(values) if values else None


def _too_large(bytes_max: int) -> LimitError:
    return LimitError("The body is too large.", limit=bytes_max)


def _requested_id(sent: bytes, new_id: str) -> str:
    """Return the client's id if it is valid in a log."""
    return sent.decode() if _VALID_ID.fullmatch(sent) else new_id


def _path(scope: Any) -> bytes:
    """Return the path as it was sent, without the path that the app is mounted below."""
    raw: bytes | None = scope.get("raw_path")
    if raw is None:  # optional in ASGI
        raw = quote(scope["path"], safe="/:@!$&'()*+,;=~-._").encode()
    if b"?" in raw:  # some servers include the query
        raw = raw.partition(b"?")[0]
    if root := scope.get("root_path"):
        raw = _without_root(raw, root.encode())
    return raw or b"/"


def _without_root(raw: bytes, root: bytes) -> bytes:
    is_below = raw.startswith(root) and raw[len(root) : len(root) + 1] in (b"/", b"")
    return raw[len(root) :] if is_below else raw
