"""From a request to a handler's arguments, by the handler's own annotations. Worked out once, when the app is made."""

import asyncio
import inspect
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from typing import Annotated, Any, Literal, get_args, get_origin, get_type_hints
from urllib.parse import unquote_to_bytes

import msgspec

from keyhouse.auth.caller import Caller
from keyhouse.errors import DeclarationError, DocumentError, NotFoundError, RecordError, UsageError
from keyhouse.http.content_negotiation import check_json
from keyhouse.http.preconditions import Conditions, conditions
from keyhouse.http.request import Request
from keyhouse.http.response import ANYTHING, Response, ResponseSpec
from keyhouse.http.route import Route
from keyhouse.http.router import path_fields
from keyhouse.limits import HTTP_BODY_BYTES_PER_VALUE, HTTP_BODY_VALUES_MAX
from keyhouse.schema import document

NOTHING = type(None)
_CHECKED_AT_ONCE = 256 * 1_024
_decode_any = msgspec.json.Decoder().decode
ARGUMENTS = ("query", "headers", "body", "caller", "conditions", "root")


class HandlerSignature(msgspec.Struct, frozen=True):
    """What a route's handler takes and returns, as types."""

    path: dict[str, Any]
    query: type[msgspec.Struct] | None
    headers: type[msgspec.Struct] | None
    body: Any
    caller: bool
    conditions: bool
    root: bool
    replies: dict[int, ResponseSpec]

    @property
    def has_body(self) -> bool:
        return self.body is not NOTHING


def handler_signature(route: Route) -> HandlerSignature:
    """DeclarationError when the handler's arguments are not those that the route can give."""
    hints = get_type_hints(route.handler, include_extras=True)
    names = list(inspect.signature(route.handler).parameters)
    fields = list(path_fields(route.path))
    for name in names:
        if name not in hints:
            raise DeclarationError(
                "A handler's arguments need types.", path=route.path, argument=name
            )
        if name not in fields and name not in ARGUMENTS:
            raise DeclarationError(
                "No part of a request has this name.", path=route.path, argument=name
            )
    for name in fields:
        if name not in names:
            raise DeclarationError(
                "The handler does not take a field of its path.", path=route.path, field=name
            )
    if "caller" in names and route.scope is None:
        raise DeclarationError("A route that wants its caller needs a scope.", path=route.path)
    if "body" in names and route.method == "GET":
        raise DeclarationError("A GET has no body.", path=route.path)
    given = {name: hints.get(name) if name in names else None for name in ("query", "headers")}
    for name, kind in given.items():
        if kind is not None and not (isinstance(kind, type) and issubclass(kind, msgspec.Struct)):
            raise DeclarationError(
                "This argument must be a Struct.", path=route.path, argument=name
            )
    return HandlerSignature(
        path={name: hints[name] for name in fields},
        query=given["query"],
        headers=given["headers"],
        body=hints["body"] if "body" in names else NOTHING,
        caller="caller" in names,
        conditions="conditions" in names,
        root="root" in names,
        replies=_replies(route, hints.get("return", Any)),
    )


def _replies(route: Route, annotated: Any) -> dict[int, ResponseSpec]:
    if route.replies:
        return {status: route.returns(status) for status in route.replies}
    if get_origin(annotated) is Response or annotated is Response:
        annotated = (*get_args(annotated), Any)[0]
    if annotated is bytes or get_origin(annotated) is AsyncIterator:
        return {200: ResponseSpec(type=bytes, media_type=ANYTHING)}
    return {204 if annotated is NOTHING else 200: ResponseSpec(type=annotated)}


class Binding:
    """Reads a handler's arguments out of a request."""

    __slots__ = (
        "_headers",
        "_names",
        "_query",
        "_read",
        "_read_body",
        "_seconds_max",
        "_takes_more",
        "body_bytes_max",
        "signature",
    )

    def __init__(self, route: Route, *, body_bytes_max: int, body_seconds_max: float) -> None:
        self.signature = handler_signature(route)
        self._names = tuple(self.signature.path)
        self._read = [
            (name, _path_reader(name, kind))
            for name, kind in self.signature.path.items()
            if kind is not str
        ]
        self._query = (
            Parameters(self.signature.query, "parameter")
            if self.signature.query is not None
            else None
        )
        self._headers = (
            Parameters(self.signature.headers, "header")
            if self.signature.headers is not None
            else None
        )
        self._takes_more = (
            self.signature.headers is not None or self.signature.conditions or self.signature.root
        )
        self._read_body = reader(self.signature.body)
        self.body_bytes_max = route.body_bytes_max or body_bytes_max
        self._seconds_max = body_seconds_max

    def arguments(
        self, request: Request, values: Sequence[str], caller: Caller | None, given: Conditions
    ) -> dict[str, Any]:
        """What the handler is called with, but for the body, which may have to be waited for."""
        arguments: dict[str, Any] = dict(zip(self._names, values, strict=True))
        for name, read in self._read:
            arguments[name] = read(arguments[name])
        if self.signature.caller:
            arguments["caller"] = caller
        if self._query is not None:
            arguments["query"] = self._query.read(query_pairs(request.query))
        elif request.query:
            raise UsageError("This route takes no parameters.")
        if self._takes_more:
            self._add_more(arguments, request, given)
        return arguments

    def _add_more(self, arguments: dict[str, Any], request: Request, given: Conditions) -> None:
        if self._headers is not None:
            arguments["headers"] = self._headers.read(self._headers.present(request))
        if self.signature.conditions:
            arguments["conditions"] = given
        if self.signature.root:
            arguments["root"] = request.root

    async def body(self, request: Request) -> Any:
        if self.signature.body is bytes:
            return await request.body(self.body_bytes_max, self._seconds_max)
        check_json(request.header(b"content-type"), request.header(b"content-encoding"))
        text = await request.body(self.body_bytes_max, self._seconds_max)
        if len(text) <= _CHECKED_AT_ONCE:
            document.check_text(text)
        else:
            for _ in document.text_checks(text, values_max=values_max(len(text))):
                await asyncio.sleep(0)
        return self._read_body(text)


def request_conditions(request: Request) -> Conditions:
    return conditions(_joined(request, b"if-match"), _joined(request, b"if-none-match"))


def _joined(request: Request, name: bytes) -> str | None:
    """A list may come in several lines."""
    values = [value.decode("latin-1") for each, value in request.pairs if each == name]
    return ", ".join(values) if values else None


def _path_reader(name: str, kind: Any) -> Callable[[str], Any]:
    """What reads a field of a path. The names of a Literal are told by a look: no type has to be worked out for them."""
    bare = get_args(kind)[0] if get_origin(kind) is Annotated else kind
    known = frozenset(get_args(bare) if get_origin(bare) is Literal else ())

    def read(value: str) -> Any:
        if value in known:
            return value
        if known:
            raise NotFoundError("Nothing can have this address.", field=name, known=sorted(known))
        try:
            return msgspec.convert(value, kind, strict=False)
        except msgspec.ValidationError as error:
            raise NotFoundError(
                "Nothing can have this address.", field=name, reason=str(error)
            ) from None

    return read


def values_max(size: int) -> int:
    """How many values a body of so many bytes may hold."""
    return max(HTTP_BODY_VALUES_MAX, size // HTTP_BODY_BYTES_PER_VALUE)


def reader(kind: Any) -> Callable[[bytes], Any]:
    """What reads a checked body of this type. What is wrong with it as JSON is a DocumentError, as a value a RecordError."""
    decode = msgspec.json.Decoder(kind).decode

    def read(text: bytes) -> Any:
        try:
            if not text.isascii():
                text.decode()  # a member that is passed over is not looked into otherwise
            try:
                return decode(text)
            except msgspec.ValidationError as error:
                _decode_any(text)  # not JSON that can be kept: then that is what is wrong with it
                raise RecordError(
                    "The body is not what this route takes.", reason=str(error)
                ) from None
        except (msgspec.DecodeError, UnicodeDecodeError, ValueError, RecursionError) as error:
            raise DocumentError("The body is not a JSON document.", reason=str(error)) from None

    return read


def query_pairs(query: bytes) -> Iterator[tuple[str, str]]:
    """Names and values, with their escapes undone; UsageError when they are not text."""
    for piece in query.split(b"&"):
        if piece:
            name, _, value = piece.replace(b"+", b" ").partition(b"=")
            try:
                yield unquote_to_bytes(name).decode(), unquote_to_bytes(value).decode()
            except UnicodeDecodeError:
                raise UsageError("A parameter's escapes must spell UTF-8.") from None


class Parameters:
    """Text by name as a Struct: the query, or headers. A member that is a list may come more than once."""

    __slots__ = ("_kind", "_lists", "_names", "_what")

    def __init__(self, kind: type[msgspec.Struct], what: str) -> None:
        fields = msgspec.structs.fields(kind)
        self._kind = kind
        self._what = what
        self._names = frozenset(field.encode_name for field in fields)
        self._lists = frozenset(field.encode_name for field in fields if _is_list(field.type))

    def read(self, pairs: Iterator[tuple[str, str]]) -> Any:
        found: dict[str, Any] = {}
        for name, value in pairs:
            if name not in self._names:
                raise UsageError(
                    f"There is no such {self._what}.", name=name, known=sorted(self._names)
                )
            if name in self._lists:
                found.setdefault(name, []).append(value)
            elif name in found:
                raise UsageError(f"This {self._what} may be given once.", name=name)
            else:
                found[name] = value
        try:
            return msgspec.convert(found, self._kind, strict=False)
        except msgspec.ValidationError as error:
            raise UsageError(f"A {self._what} is not what it must be.", reason=str(error)) from None

    def present(self, request: Request) -> Iterator[tuple[str, str]]:
        """Those of the request's headers that are asked for."""
        names = {name.lower().encode(): name for name in self._names}
        for name, value in request.pairs:
            if name in names:
                yield names[name], value.decode("latin-1")


def _is_list(kind: Any) -> bool:
    return get_origin(kind) in (list, tuple, set, frozenset) or any(map(_is_list, get_args(kind)))
