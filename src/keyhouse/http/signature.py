"""Handler signatures: the types of a route's arguments and responses, from the annotations of its
handler or as the route gives them.

They are read once, when the app is made.
"""

import inspect
import re
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping
from types import UnionType
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints
from urllib.parse import unquote_to_bytes

import msgspec

from keyhouse.advice.nearest import nearest
from keyhouse.advice.rejected_members import rejected_member
from keyhouse.auth.caller import Authenticator, HeaderPairs
from keyhouse.errors import DeclarationError, DocumentError, NotFoundError, RecordError, UsageError
from keyhouse.http.limits import HTTP_BODY_BYTES_PER_VALUE, HTTP_LARGE_BODY_VALUES_MAX
from keyhouse.http.response import ANYTHING, Responder, Response, ResponseSpec
from keyhouse.http.router import Route, path_fields
from keyhouse.requests.json_checks import check_request
from keyhouse.requests.limits import REQUEST_VALUES_MAX

T = TypeVar("T")

NONE_TYPE = type(None)
ARGUMENTS = ("query", "headers", "body", "form", "caller", "client", "conditions", "root")
_decode_any = msgspec.json.Decoder().decode


class HandlerSignature(msgspec.Struct, frozen=True):
    """The types of the arguments and responses of a route's handler."""

    path: dict[str, Any]
    query: type[msgspec.Struct] | None
    headers: type[msgspec.Struct] | None
    body: Any
    is_form: bool
    caller: bool
    is_caller_optional: bool
    client: bool
    conditions: bool
    root: bool
    replies: dict[int, ResponseSpec]

    @property
    def has_body(self) -> bool:
        return self.body is not NONE_TYPE


def is_open(signature: HandlerSignature, scope: str, auth: Authenticator) -> bool:
    """Return whether a route answers requests without credentials."""
    anonymous = auth.anonymous
    has_scope = anonymous is not None and (not scope or scope in anonymous.scopes)
    return has_scope or signature.is_caller_optional


def handler_signature(route: Route) -> HandlerSignature:
    """Raises DeclarationError if the handler's arguments do not match the route."""
    if route.parameters is not None:
        hints = {**route.parameters, "return": route.result}
        names = list(route.parameters)
    else:
        hints = get_type_hints(route.handler, include_extras=True)
        names = list(inspect.signature(route.handler).parameters)
    fields = list(path_fields(route.path))
    for name in names:
        if name not in hints:
            raise DeclarationError(
                "An argument of a handler has no annotation.", path=route.path, argument=name
            )
        if name not in fields and name not in ARGUMENTS:
            raise DeclarationError(
                "A handler has an argument that is not part of a request.",
                path=route.path,
                argument=name,
            )
    for name in fields:
        if name not in names:
            raise DeclarationError(
                "A field of the path is not an argument of the handler.",
                path=route.path,
                field=name,
            )
    if "caller" in names and route.scope is None:
        raise DeclarationError(
            "A route whose handler takes the caller needs a scope.", path=route.path
        )
    bodies = [name for name in ("body", "form") if name in names]
    if bodies and route.method == "GET":
        raise DeclarationError("A GET route cannot have a body.", path=route.path)
    if len(bodies) > 1:
        raise DeclarationError("A route has a body or a form, not both.", path=route.path)
    structs = {
        name: hints.get(name) if name in names else None for name in ("query", "headers", "form")
    }
    for name, kind in structs.items():
        if kind is not None and not (isinstance(kind, type) and issubclass(kind, msgspec.Struct)):
            raise DeclarationError(
                "This argument of a handler must be a Struct.", path=route.path, argument=name
            )
    return HandlerSignature(
        path={name: hints[name] for name in fields},
        query=structs["query"],
        headers=structs["headers"],
        body=hints[bodies[0]] if bodies else NONE_TYPE,
        is_form=bodies == ["form"],
        caller="caller" in names,
        is_caller_optional="caller" in names and NONE_TYPE in get_args(hints["caller"]),
        client="client" in names,
        conditions="conditions" in names,
        root="root" in names,
        replies=_replies(route, hints.get("return", Any)),
    )


def _replies(route: Route, annotated: Any) -> dict[int, ResponseSpec]:
    if route.replies:
        return {status: route.returns(status) for status in route.replies}
    if get_origin(annotated) is Response or annotated is Response:
        annotated = (*get_args(annotated), Any)[0]
    kinds = get_args(annotated) if get_origin(annotated) in (Union, UnionType) else (annotated,)
    if all(isinstance(kind, type) and issubclass(kind, Responder) for kind in kinds):
        return {status: reply for kind in kinds for status, reply in kind.replies.items()}
    if annotated is bytes or get_origin(annotated) is AsyncIterator:
        return {200: ResponseSpec(type=bytes, media_type=ANYTHING)}
    return {204 if annotated is NONE_TYPE else 200: ResponseSpec(type=annotated)}


def known_values(kind: Any) -> frozenset[Any]:
    """Return the values of a Literal, else nothing."""
    bare = get_args(kind)[0] if get_origin(kind) is Annotated else kind
    return frozenset(get_args(bare) if get_origin(bare) is Literal else ())


def pattern_test(kind: Any) -> Callable[[str], object] | None:
    """Return a function that tells the texts of a type that is any text of a pattern, which are not
    converted; None for other types."""
    bare, *meta = get_args(kind) if get_origin(kind) is Annotated else (kind,)
    if bare is not str or len(meta) != 1 or not isinstance(meta[0], msgspec.Meta):
        return None
    pattern = meta[0].pattern
    if pattern is None or meta[0] != msgspec.Meta(pattern=pattern):
        return None
    return re.compile(pattern).search


def convert_field(name: str, value: str, kind: Any, known: frozenset[Any]) -> Any:
    """Convert a field of a path to its type. Raises NotFoundError if it is invalid."""
    if known:
        raise NotFoundError("Invalid path parameter.", field=name, **nearest(value, known))
    try:
        return msgspec.convert(value, kind, strict=False)
    except msgspec.ValidationError as error:
        raise NotFoundError("Invalid path parameter.", field=name, reason=str(error)) from None


def body_values_max(size: int) -> int:
    """Return how many JSON values a body of `size` bytes may contain."""
    values = max(REQUEST_VALUES_MAX, size // HTTP_BODY_BYTES_PER_VALUE)
    return min(values, HTTP_LARGE_BODY_VALUES_MAX)


def body_decoder(kind: Any) -> Callable[[bytes], Any]:
    """Return a function that decodes a checked body of this type.

    It raises DocumentError for invalid JSON and RecordError for a value of another type.
    """
    decode = msgspec.json.Decoder(kind).decode

    def decode_body(text: bytes) -> Any:
        try:
            if not text.isascii():
                text.decode()  # msgspec does not check members that it skips
            try:
                return decode(text)
            except msgspec.ValidationError as error:
                plain = _decode_any(text)  # raises if it is not JSON: that is reported first
                raise RecordError(
                    "The body does not have the type that this route takes.",
                    reason=str(error),
                    **rejected_member(kind, plain),
                ) from None
        except (msgspec.DecodeError, UnicodeDecodeError, ValueError, RecursionError) as error:
            raise DocumentError("The body is not a JSON document.", reason=str(error)) from None

    return decode_body


def decode_optional(text: bytes, kind: type[T]) -> T:
    """Check and decode a body that may be absent, which is an empty object."""
    check_request(text)
    value: T = body_decoder(kind)(text.strip() or b"{}")
    return value


def query_pairs(query: bytes, what: str = "query parameter") -> Iterator[tuple[str, str]]:
    """Yield names and values, percent-decoded. Raises UsageError if they are not UTF-8."""
    if not query:
        return
    for piece in query.split(b"&"):
        if piece:
            name, _, value = piece.replace(b"+", b" ").partition(b"=")
            try:
                yield unquote_to_bytes(name).decode(), unquote_to_bytes(value).decode()
            except UnicodeDecodeError:
                raise UsageError(f"A {what} is not UTF-8.") from None


class Parameters:
    """Converts texts by name to a Struct: the query, or headers. A list may come repeatedly.

    A Struct with `unknown_parameter(name)` makes the error for names that are not misspelled ones
    itself; one with a member that is a dict has them there. One with `invalid_choice(name, value)`
    may make the error for a value that is not one of a Literal.
    """

    __slots__ = (
        "_all_have_defaults",
        "_choices",
        "_kind",
        "_lists",
        "_names",
        "_others",
        "_required",
        "_sent_names",
        "_what",
    )

    def __init__(self, kind: type[msgspec.Struct], what: str) -> None:
        fields = msgspec.structs.fields(kind)
        self._kind = kind
        self._what = what
        dicts = [field.encode_name for field in fields if get_origin(field.type) is dict]
        self._others = dicts[0] if dicts else None
        self._names = frozenset(field.encode_name for field in fields) - {self._others}
        self._lists = frozenset(field.encode_name for field in fields if _is_list(field.type))
        self._sent_names = {name.lower().encode(): name for name in self._names}
        self._required = [field.encode_name for field in fields if field.required]
        self._all_have_defaults = not self._required
        choices = {field.encode_name: _choices(field.type) for field in fields}
        self._choices = {name: known for name, known in choices.items() if known}

    def read(self, pairs: Iterable[tuple[str, str]]) -> Any:
        values: dict[str, Any] = {}
        for name, value in pairs:
            if name not in self._names:
                if self._others is not None:
                    others = values.setdefault(self._others, {})
                    if name in others:
                        raise UsageError(f"Repeated {self._what}.", name=name)
                    others[name] = value
                    continue
                raise self._unknown(name)
            if name in self._lists:
                values.setdefault(name, []).append(value)
            elif name in values:
                raise UsageError(f"Repeated {self._what}.", name=name)
            else:
                values[name] = value
        if not values and self._all_have_defaults:
            return self._kind()
        try:
            return msgspec.convert(values, self._kind, strict=False)
        except msgspec.ValidationError as error:
            raise self._invalid(values, str(error)) from None

    def _unknown(self, name: str) -> Exception:
        """Return the error of a name that is not known: a misspelled one has the nearest."""
        near = nearest(name, sorted(self._names))
        if (
            "nearest" not in near
            and (make_error := getattr(self._kind, "unknown_parameter", None)) is not None
        ):
            error: Exception = make_error(name)
            return error
        return UsageError(f"Unknown {self._what}.", name=name, **near)

    def _invalid(self, values: dict[str, Any], reason: str) -> Exception:
        """Return the error of values that do not convert; it names the known values of a choice."""
        for name in self._required:
            if name not in values:
                listed = {"known": self._choices[name]} if name in self._choices else {}
                return UsageError(f"Missing {self._what}: `{name}`.", name=name, **listed)
        for name, known in self._choices.items():
            value = values.get(name)
            if isinstance(value, str) and value not in known:
                make_error = getattr(self._kind, "invalid_choice", None)
                made: Exception | None = None if make_error is None else make_error(name, value)
                if made is not None:
                    return made
                near = nearest(value, known)
                return UsageError(f"Invalid {self._what}.", name=name, value=value, **near)
        return UsageError(f"Invalid {self._what}.", reason=reason)

    def read_headers(self, pairs: HeaderPairs, sent: Mapping[bytes, bytes]) -> Any:
        """Convert the headers that the Struct declares, from all pairs; `sent` has their names."""
        names = self._sent_names
        if names.keys().isdisjoint(sent):
            return self.read(())
        return self.read(
            [(names[name], value.decode("latin-1")) for name, value in pairs if name in names]
        )


def _choices(kind: Any) -> list[str]:
    """Return the texts of a Literal, also of an optional one; else nothing."""
    found = [kind] if get_origin(kind) is Literal else get_args(kind)
    literals = [each for each in found if get_origin(each) is Literal]
    texts = [value for each in literals for value in get_args(each)]
    return texts if all(isinstance(value, str) for value in texts) else []


def _is_list(kind: Any) -> bool:
    return get_origin(kind) in (list, tuple, set, frozenset) or any(map(_is_list, get_args(kind)))
