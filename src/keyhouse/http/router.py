"""Routes and the router: a tree of path segments, in which text precedes fields.

The tree is compiled to one regular expression on first use, so that a path is found in one step,
however many routes there are. A path is split before it is percent-decoded: `%2F` in a field is a
character of the field and never a separator.

The error of a path that no route has tells where it leaves the known ones: see `KnownPaths`.
"""

import re
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from operator import itemgetter
from typing import Any, Final, Generic, TypeVar
from urllib.parse import unquote_to_bytes

import msgspec

from keyhouse.advice.nearest import nearest
from keyhouse.errors import DeclarationError, KeyhouseError, UsageError
from keyhouse.http.response import JSON, Responder, ResponseSpec

T = TypeVar("T")

Handler = Callable[..., Awaitable[Any]]

ErrorPage = Callable[[KeyhouseError, str, str], Responder]
"""Makes the page of an error, from the root and the path with query that was requested."""

Values = Callable[[re.Match[str]], Sequence[str]]

METHODS = ("GET", "POST", "PUT", "PATCH", "DELETE")
"""HEAD follows from GET, and OPTIONS from the methods of a path."""

_SEGMENT = re.compile(r"([^{}]*)\{(\w+)\}([^{}]*)|[^{}]*")

_SLASH: Final = "\udc2f"
"""A slash inside a segment while the path is matched. It has no UTF-8: no client can send it."""


class BodySchema(msgspec.Struct, frozen=True):
    """The JSON Schema of a body, and the components of the document that it refers to by name."""

    schema: dict[str, Any]
    components: dict[str, Any]


class Route(msgspec.Struct, frozen=True, kw_only=True):
    """One row of the route table, from which the OpenAPI document is generated.

    `handler` is an async function of plain values, passed by name:

        {field} of the path   an argument of that name, of its annotated type
        query                 a Struct: a member for each parameter
        headers               a Struct: a member for each header, renamed to it
        body                  any type that msgspec decodes from JSON; `bytes` for the raw body
        form                  a Struct: a member for each field of an HTML form, instead of a body
        caller                the Caller, on a route with a scope; `Caller | None`: None for a
                              request without credentials
        client                the ClientAddress, through the trusted proxies
        conditions            If-Match and If-None-Match
        root                  the path that the app is mounted below, or ""

    It returns a plain value or a Response, raises KeyhouseErrors, and knows nothing else of HTTP.
    Its signature has their types. A route that is generated gives them as data: `parameters`, by
    name, `result`, the type that the handler returns, and the `name` and `doc` of the operation.

    `path` is below the service's prefix; a segment is text, a `{field}`, or a field with text
    around it. `scope` is the scope that a caller must have; "": any caller; None: no caller is
    identified. `replies` maps a status to a type or a ResponseSpec; by default status 200 returns
    the handler's annotation, or 204 if that is None. `problems` are the errors that only this
    handler raises; the HTTP layer's own are known. `example` is a body, for the document;
    `body_type` is its type there, or a BodySchema, and `body_media_types` its media types, where
    the handler takes any JSON and checks it itself. `parameter_docs` describe parameters whose
    types do not, by name. `extract_json` takes the JSON out of a body
    that may have text around it, before anything of it is checked. `error_page` makes the
    response to an error of a page, in place of the service's error format: an HtmlPage, or a
    Redirect to the login. Its arguments are the error, the root, and the path with query of the
    page that was requested; "" for a form. An error with status 500 or above is logged by the
    app, and comes without its fields. That of a service's page `/` also serves browsers at
    paths that no route has, except below those of its API. `rejects`: the handler rejects every
    request, whatever its query. `operation` is the name under which a service measures it.
    """

    method: str
    path: str
    handler: Handler
    scope: str | None = None
    parameters: Mapping[str, Any] | None = None
    result: Any = Any
    name: str = ""
    doc: str = ""
    replies: Mapping[int, Any] = {}
    problems: Sequence[type[KeyhouseError]] = ()
    example: Any = msgspec.UNSET
    body_type: Any = None
    body_media_types: Sequence[str] = (JSON,)
    parameter_docs: Mapping[str, str] = {}
    body_bytes_max: int | None = None
    extract_json: Callable[[bytes], bytes] | None = None
    error_page: ErrorPage | None = None
    tag: str = ""
    listed: bool = True
    rejects: bool = False
    operation: str = ""

    def __post_init__(self) -> None:
        if self.method not in METHODS:
            raise DeclarationError(
                "Unknown method of a route.", method=self.method, **nearest(self.method, METHODS)
            )
        if not self.path.startswith("/") or "//" in self.path:
            raise DeclarationError(
                "The path of a route must start with a slash and contain no double slash.",
                path=self.path,
            )

    def returns(self, status: int) -> ResponseSpec:
        declared = self.replies[status]
        return declared if isinstance(declared, ResponseSpec) else ResponseSpec(type=declared)


class RouteGroup:
    """Makes routes that share a prefix of the path and options: `api.get("/queue", handler)`.

    `tag` is that of all routes; None: the first segment of the path below the prefix.
    """

    def __init__(self, prefix: str = "", *, tag: str | None = "", **shared: Any) -> None:
        self._prefix = prefix
        self._tag = tag
        self._shared = shared

    def get(self, path: str, handler: Handler, **options: Any) -> Route:
        return self._route("GET", path, handler, options)

    def post(self, path: str, handler: Handler, **options: Any) -> Route:
        return self._route("POST", path, handler, options)

    def put(self, path: str, handler: Handler, **options: Any) -> Route:
        return self._route("PUT", path, handler, options)

    def patch(self, path: str, handler: Handler, **options: Any) -> Route:
        return self._route("PATCH", path, handler, options)

    def delete(self, path: str, handler: Handler, **options: Any) -> Route:
        return self._route("DELETE", path, handler, options)

    def _route(self, method: str, path: str, handler: Handler, options: dict[str, Any]) -> Route:
        tag = path.split("/")[1] if self._tag is None else self._tag
        given = {"tag": tag, **self._shared, **options}
        return Route(method=method, path=self._prefix + path, handler=handler, **given)


class _Node(Generic[T]):
    __slots__ = ("by_method", "fields", "texts")

    def __init__(self) -> None:
        self.texts: dict[str, _Node[T]] = {}
        self.fields: list[tuple[str, str, _Node[T]]] = []
        self.by_method: dict[str, T] = {}


class Router(Generic[T]):
    """Maps a path to its entries by method."""

    def __init__(self) -> None:
        self._root: _Node[T] = _Node()
        self._match = re.compile(r"(?!)").fullmatch
        self._ends: dict[int | None, tuple[dict[str, T], Values]] = {}
        self._is_compiled = True

    def add(self, method: str, path: str, entry: T) -> None:
        node = self._root
        for segment in path[1:].split("/"):
            node = self._child(node, segment, path)
        if method in node.by_method:
            raise DeclarationError(
                "Two routes have the same method and path.", method=method, path=path
            )
        node.by_method[method] = entry
        self._is_compiled = False

    def find(self, raw_path: bytes) -> tuple[dict[str, T], Sequence[str]] | None:
        """Return the entries of a path by method, and the values of its fields; or None."""
        if not self._is_compiled:
            self._compile()
        is_escaped = b"%" in raw_path
        try:
            match = self._match(_unescaped(raw_path) if is_escaped else raw_path.decode())
        except UnicodeDecodeError:
            raise UsageError("The path is not UTF-8.") from None
        if match is None:
            return None
        by_method, values_of = self._ends[match.lastindex]
        values = values_of(match)
        if is_escaped:
            values = [value.replace(_SLASH, "/") for value in values]
        return by_method, values

    def _child(self, node: _Node[T], segment: str, path: str) -> _Node[T]:
        match = _SEGMENT.fullmatch(segment)
        if match is None:
            raise DeclarationError(
                "A segment of a path has at most one field, in braces.", path=path
            )
        if match[2] is None:
            return node.texts.setdefault(segment, _Node())
        before, after = match[1], match[3]
        for known_before, known_after, child in node.fields:
            if (known_before, known_after) == (before, after):
                return child
        child = _Node()
        node.fields.append((before, after, child))
        node.fields.sort(key=lambda each: -len(each[0] + each[1]))
        return child

    def _compile(self) -> None:
        self._ends = {}
        self._match = re.compile(self._pattern(self._root, ())).fullmatch
        self._is_compiled = True

    def _pattern(
        self, node: _Node[T], fields: tuple[int, ...], groups: list[int] | None = None
    ) -> str:
        """Return the pattern of everything below a node: texts, then fields, then the end, which an
        empty group marks.

        `fields` are the groups of the fields before the node; `groups` counts all groups, because
        the last one identifies the end that matched.
        """
        count = groups if groups is not None else [0]
        alternatives = [
            f"/{re.escape(text)}{self._pattern(child, fields, count)}"
            for text, child in node.texts.items()
        ]
        for before, after, child in node.fields:
            count[0] += 1
            own = f"([^/]{'+' if after else '++'})"
            rest = self._pattern(child, (*fields, count[0]), count)
            alternatives.append(f"/{re.escape(before)}{own}{re.escape(after)}{rest}")
        if node.by_method:
            count[0] += 1
            self._ends[count[0]] = (node.by_method, _values(fields))
            alternatives.append("()")
        return f"(?:{'|'.join(alternatives)})"


def path_fields(path: str) -> Iterator[str]:
    """Yield the names of a path's fields, in order."""
    for segment in path.split("/"):
        match = _SEGMENT.fullmatch(segment)
        if match is not None and match[2] is not None:
            yield match[2]


def _values(groups: tuple[int, ...]) -> Values:
    """Return a function that takes the values of these groups from a match."""
    if len(groups) > 1:
        return itemgetter(*groups)
    if not groups:
        return lambda match: ()
    (group,) = groups
    return lambda match: (match[group],)


def _unescaped(raw_path: bytes) -> str:
    """Percent-decode the segments of a path. Raises UnicodeDecodeError if one is not UTF-8."""
    segments = [
        unquote_to_bytes(segment).decode().replace("/", _SLASH) for segment in raw_path.split(b"/")
    ]
    return "/".join(segments)


# Paths that no route has

_KNOWN_MAX: Final = 20
_PATHS_MAX: Final = 3
_SEGMENT_CHARS_MAX: Final = 64
_FIELD: Final = "{}"


class _Place:
    """A segment of known paths: the texts that may follow, or a field, and paths through it."""

    __slots__ = ("next", "paths")

    def __init__(self) -> None:
        self.next: dict[str, _Place] = {}
        self.paths: list[str] = []


class KnownPaths:
    """A tree of the paths that clients may know.

    It is asked only for unknown paths, walks as many segments as the path has, and names no more
    than a few known ones.
    """

    def __init__(self, paths: Iterable[str]) -> None:
        self._root = _Place()
        for path in paths:
            place = self._root
            for segment in path[1:].split("/"):
                place = place.next.setdefault(_FIELD if "{" in segment else segment, _Place())
                if path not in place.paths and len(place.paths) < _PATHS_MAX:
                    place.paths.append(path)

    def describe(self, raw_path: bytes) -> dict[str, object]:
        """Return fields for the error of a path: its first unknown segment with the known ones, or
        the paths that begin as it does."""
        place = self._root
        for segment in raw_path.decode(errors="replace")[1:].split("/"):
            following = place.next.get(segment) or place.next.get(_FIELD)
            if following is None:
                return self._unknown(place, segment)
            place = following
        return {"paths": place.paths}

    def _unknown(self, place: _Place, segment: str) -> dict[str, object]:
        known = [*place.next][:_KNOWN_MAX]
        if not known:
            return {"paths": place.paths}
        segment = segment[:_SEGMENT_CHARS_MAX]
        return {"segment": segment, **nearest(segment, known)}
