"""Texts that take long to normalize, fold, match or parse, in every parameter of a request.

Parameters are those of the routing table and of the bodies of operations, so that new ones are
attacked without being listed here.
"""

import itertools
import json
import re
import socket
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, suppress
from functools import cache
from itertools import islice
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, NamedTuple
from urllib.parse import quote, quote_plus, urlencode

from tests.abuse import routes
from tests.abuse.support.server import ServerProcess
from tests.sizes import size

TEXTS: Final[dict[str, str]] = {
    "marks of two classes": "\u0300" * 12_000 + "\u0316" * 12_000,
    "marks of class 0": "\u0f81" * 16_000,
    "U+FDFA": "\ufdfa" * 16_000,
    "runs of 30 marks": ("a" + "\u0345\u0300\u0316" * 10) * 780,
    "one letter": "a" * 48_000,
    "white space": " \u3000" * 12_000 + "a",
    "delimiters": ":/~%|." * 8_000,
    "digits": "9" * 48_000,
    "brackets": "[" * 48_000,
}
"""48 kB each, as UTF-8."""

_SURROGATES: Final = '"' + "\\ud800" * 8_000 + '"'
JSON_VALUES: Final[dict[str, str]] = {
    "10^6 digits": "9" * 1_000_000,
    "10^5 brackets": "[" * 100_000 + "]" * 100_000,
    "nested objects": '{"a":' * 100_000 + "1" + "}" * 100_000,
    "surrogates": _SURROGATES,
}
"""Values as JSON, nearly as large as a body may be."""

_WHOLE: Final = bool(size(0, 1, 1))
_SHORT_VALUES: Final[dict[str, str]] = {
    "10^5 digits": "9" * 100_000,
    "10^4 brackets": "[" * 10_000 + "]" * 10_000,
    "nested objects": '{"a":' * 10_000 + "1" + "}" * 10_000,
    "surrogates": _SURROGATES,
}

HEADERS: Final = (
    *("Accept", "Accept-Encoding", "Accept-Language", "Authorization", "Content-Type", "Cookie"),
    *("Idempotency-Key", "If-Match", "If-Modified-Since", "If-None-Match", "Keyhouse-Space"),
    *("Origin", "Range", "Traceparent", "X-Forwarded-For", "X-Request-Id"),
)
"""Sent to one route of each system, beside those that a route declares."""

HEADER_TEXTS: Final[dict[str, bytes]] = {
    "ranges": b"bytes=" + b"0-0," * 7_000,
    "tags": b'W/"a", ' * 4_000,
    "qualities": b"a/b;q=0.1," * 3_000,
    "pairs": b"a=b; " * 6_000,
    "segments": b"Bearer " + b"a." * 14_000,
    "digits": b"9" * 30_000,
    "spaces": b"a" + b" \t" * 14_000 + b"a",
    "quotes": b'"' * 30_000,
    "bytes": "\u0300".encode() * 15_000,
}
_URL_BYTES: Final = 28_000

PERSON: Final = {"id": "n0", "name": "n", "title": "t", "alias": "a", "tags": ["x"]}
EXAMPLES: Final[dict[str, Any]] = {
    "/names/records/person": PERSON,
    "/names/get-many/person": {"addresses": [{"id": "a"}]},
    "/recipes/records/recipe": {"id": "a", "title": "t", "slug": "a", "note": "n", "tags": ["x"]},
}
"""Bodies of served schemas, whose routes have none in the table, by the start of the path."""
_INDEXES: Final = ("name", "title", "alias", "tag")
"""Of `tests.abuse.support.names`, named after their fields."""

_numbers = itertools.count()
"""Each request has its own address, so that no limit by address rejects it."""

_USERNAME: Final = re.compile(rb'("username": "|\busername=)[A-Za-z0-9]{1,32}(?=["&]|$)')
"""Each request has its own user: wrong passwords of one make the next ones wait for seconds."""

_MARK: Final = "\0bomb\0"
"""Stands for the bomb in a body."""


class Bomb(NamedTuple):
    """One request: where its bomb is, and its bytes. `counts_attempts`: a sign-in, which may answer
    that there were too many (429)."""

    name: str
    request: bytes

    @property
    def counts_attempts(self) -> bool:
        return self.name.startswith("POST ") and any(
            f"/{word}" in self.name for word in ("login", "setup", "otp")
        )


class Texts:
    """The texts for each parameter. In a usual run, the first of its place and name gets all of
    them, whole. Another one gets half of the first text, which takes 0.14 s to normalize, and is
    found as well; one of the others in turn; and one JSON value, a shorter one, which the one
    parser of bodies reads."""

    def __init__(self) -> None:
        self._attacked: set[str] = set()
        self._halves = itertools.cycle(_halves().items())
        self._values = itertools.cycle(_SHORT_VALUES.items())
        self._headers = itertools.cycle(HEADER_TEXTS.items())

    def of(self, parameter: str) -> dict[str, str]:
        if self._is_whole(parameter):
            return TEXTS
        return dict([next(iter(_halves().items())), *islice(self._halves, 1)])

    def json_values(self, place: str) -> dict[str, str]:
        return JSON_VALUES if self._is_whole(place) else dict(islice(self._values, 1))

    def of_header(self, header: str) -> dict[str, bytes]:
        return HEADER_TEXTS if self._is_whole(f"{header}:") else dict(islice(self._headers, 2))

    def _is_whole(self, parameter: str) -> bool:
        is_whole = _WHOLE or parameter not in self._attacked
        self._attacked.add(parameter)
        return is_whole


def route_bombs(call: routes.RouteCall, texts: Texts) -> Iterator[Bomb]:
    """Yield requests of a route, each with one bomb in one parameter."""
    route = call.route
    at = f"{route['method']} {route['path']}"
    values = routes.path_values(route, call.tenant)
    for field in values:
        for name, text in texts.of(f"{{{field}}}").items():
            path = route["path"].format(**{**values, field: _percent_encoded(text)})
            yield Bomb(f"{at} {{{field}}}: {name}", _raw(call._replace(path=path)))
    for parameter in route["parameters"]:
        others = {**dict.fromkeys(route["query"], "x"), **_chosen_index(route, parameter)}
        query = "".join(f"&{key}={value}" for key, value in others.items() if key != parameter)
        for name, text in texts.of(f"?{parameter}").items():
            path = call.path.partition("?")[0] + f"?{parameter}={_percent_encoded(text)}{query}"
            yield Bomb(f"{at} ?{parameter}: {name}", _raw(call._replace(path=path)))
    for member in route["members"] if route["is_form"] else ():
        others = {key: value for key, value in (route["example"] or {}).items() if key != member}
        for name, text in texts.of(f"{member}=").items():
            form = f"{urlencode(others)}&{quote_plus(member)}={_form_encoded(text)}"
            yield Bomb(f"{at} {member}: {name}", _raw(call, form.encode()))
    if route["has_body"] and not route["is_form"]:
        example = route["example"] or EXAMPLES.get(route["path"].partition("/{")[0])
        yield Bomb(f"{at} without a bomb", _raw(call, json.dumps(example).encode()))
        for name, data in body_bombs(example, texts, route["members"], route["values"]):
            yield Bomb(f"{at} {name}", _raw(call, data))
    for header in route["headers"]:
        for name, value in texts.of_header(header).items():
            yield Bomb(f"{at} {header}: {name}", _raw(call, headers={header: value}))


def header_bombs(call: routes.RouteCall) -> Iterator[Bomb]:
    for header in HEADERS:
        for name, value in HEADER_TEXTS.items():
            yield Bomb(f"{call.path} {header}: {name}", _raw(call, headers={header: value}))


def body_bombs(
    example: Any,
    texts: Texts,
    members: Iterable[str] = (),
    values: Mapping[str, Any] = MappingProxyType({}),
) -> Iterator[tuple[str, bytes]]:
    """Yield bodies, each with one bomb: in a text of the example, in one of the values of members,
    in the name of a member, in place of a member, and in place of the whole."""
    bodies = {f"$.{name}": _with_member(example, name) for name in members}
    for member, value in values.items():
        for where, changed in _with_mark(value, f"$.{member}"):
            bodies[where] = {**(example if isinstance(example, dict) else {}), member: changed}
    bodies |= dict(_with_mark(example, "$"))
    if isinstance(example, dict):
        bodies["a name"] = {**example, _MARK: 1}
    for where, body in bodies.items():
        template = json.dumps(body)
        for name, text in texts.of(where).items():
            yield f"{where}: {name}", _filled(template, _as_json(text))
        if where != "a name":
            yield f"{where}: surrogates", _filled(template, _SURROGATES)
    for where in list(bodies)[:1]:  # the parser does not look at names
        for name, value in texts.json_values("a member").items():
            yield f"{where}: {name}", _filled(json.dumps(bodies[where]), value)
    for name, value in texts.json_values("the body").items():
        yield f"the body: {name}", value.encode()


def _chosen_index(route: dict[str, Any], parameter: str) -> dict[str, str]:
    """Return the index of a list by its name, where it is that of a field."""
    field = parameter.partition(".")[0]
    return {"by": field} if "by" in route["parameters"] and field in _INDEXES else {}


def _with_member(example: Any, name: str) -> Any:
    return {**(example if isinstance(example, dict) else {}), name: _MARK}


def _with_mark(value: Any, where: str) -> Iterator[tuple[str, Any]]:
    """Yield copies of a value with one text replaced; of a list, in its first item."""
    if isinstance(value, str):
        yield where, _MARK
    elif isinstance(value, list) and value:
        for inner, changed in _with_mark(value[0], f"{where}[0]"):
            yield inner, [changed, *value[1:]]
    elif isinstance(value, dict):
        for name, member in value.items():
            for inner, changed in _with_mark(member, f"{where}.{name}"):
                yield inner, {**value, name: changed}


def _filled(template: str, value: str) -> bytes:
    return template.replace(json.dumps(_MARK), value).encode("utf-8", "surrogatepass")


@cache
def _as_json(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


@cache
def _form_encoded(text: str) -> str:
    return quote_plus(text)


@cache
def _percent_encoded(text: str) -> str:
    """Return the text as part of a URL, as long as a request line may be."""
    return quote(_shortened(text, _URL_BYTES * len(text) // len(quote(text, safe=""))), safe="")


@cache
def _halves() -> dict[str, str]:
    return {name: _shortened(text, len(text) // 2) for name, text in TEXTS.items()}


@cache
def _shortened(text: str, chars: int) -> str:
    """Return both ends of a text: marks of two classes remain so."""
    half = chars // 2
    return text if len(text) <= chars else text[:half] + text[-half:]


def _raw(
    call: routes.RouteCall, body: bytes | None = None, *, headers: dict[str, bytes] | None = None
) -> bytes:
    number = next(_numbers)
    body = call.body if body is None else body
    if body is not None and b"username" in body:
        body = _USERNAME.sub(rb"\g<1>bomb%d" % number, body, count=1)
    call = call._replace(body=body)
    sent = {name.lower(): value.encode() for name, value in call.head().items()}
    sent["x-forwarded-for"] = b"10.%d.%d.1" % divmod(number % 65_536, 256)
    sent |= {name.lower(): value for name, value in (headers or {}).items()}
    head = b"".join(f"{name}: ".encode() + value + b"\r\n" for name, value in sent.items())
    line = f"{call.method} {call.path} HTTP/1.1\r\n".encode()
    return line + head + b"connection: close\r\n\r\n" + (call.body or b"")


def status_of(server: ServerProcess, request: bytes, *, timeout: float = 60) -> int:
    """Send a request on its own connection and return the status; 0 if there is none."""
    return statuses_of(server, [request], timeout=timeout)[0]


def statuses_of(
    server: ServerProcess, requests: Iterable[bytes], *, timeout: float = 60
) -> list[int]:
    """Send requests, each on its own connection, before any response is read; return the statuses:
    a request takes the server a millisecond, and waiting for its turn on a busy machine ten."""
    with ExitStack() as stack:
        connections = []
        for request in requests:
            connection = socket.create_connection(server.address, timeout=timeout)
            connections.append(stack.enter_context(connection))
            with suppress(ConnectionError):  # rejected before its end
                connection.sendall(request)
        return [_status(connection) for connection in connections]


def _status(connection: socket.socket) -> int:
    with suppress(ConnectionError), connection.makefile("rb") as reader:
        parts = reader.readline().split(b" ")
        return int(parts[1]) if len(parts) > 1 else 0
    return 0


class LoopTime:
    """The CPU time of a server's main thread, which runs the event loop: other programs on the
    machine do not count, nor do threads."""

    def __init__(self, server: ServerProcess) -> None:
        self._path = Path(f"/proc/{server.pid}/task/{server.pid}/schedstat")

    @property
    def seconds(self) -> float:
        return int(self._path.read_text().split()[0]) / 1e9
