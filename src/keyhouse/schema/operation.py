"""Operations of one's own: a function of a store and a typed request, served beside the generated
operations of a schema.

    @operation(access="write")
    async def request_song(store: Store, request: SongRequest) -> Queued: …

    SONGS = Schema("songs", SONG, REQUEST, operations=[request_song], space=Space("a channel"))

The declaration is data: name, types, access and function. It knows no protocol.
"""

import inspect
import re
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from typing import (
    Any,
    Final,
    Generic,
    Literal,
    Never,
    Protocol,
    TypeVar,
    get_type_hints,
    overload,
)

import msgspec
from msgspec.inspect import AnyType, Field, Type, type_info

from keyhouse.errors import DeclarationError, KeyhouseError, UsageError
from keyhouse.private_types import hidden_in
from keyhouse.schema.record import Record

__all__ = ["METRIC_NAMES", "OPERATIONS", "Access", "Operation", "operation"]

Access = Literal["read", "write"]
Q = TypeVar("Q")
R = TypeVar("R")

OPERATIONS: Final = (
    "list",
    "get",
    "get_many",
    "lookup",
    "create",
    "put",
    "patch",
    "delete",
    "add",
    "append",
    "batch",
    "watch",
    "keys",
    "record_count",
    "members",
    "sum_of_days",
    "clear",
)
"""The operations that a service generates, by the names of NATS subjects and of metrics."""

METRIC_NAMES: Final = ("cleanup", "errors", "storage", "watches")
"""Names of a service's metrics beside those of operations."""

_NAME: Final = re.compile("[a-z][a-z0-9_]{0,62}")
_SIGNATURE: Final = "async def name(store: Store, request: Request) -> Reply"


class Operation(Generic[Q, R]):
    """An operation of one's own, made by `@operation`. Call it with a store and a request, as the
    function itself; a service calls it with a store of the caller's space.

    `request` and `reply` are the Structs of its annotations, or None. `access` is the scope that a
    caller needs. `doc` is the docstring. `is_open`: the type of the reply does not tell all that
    it holds.
    """

    __slots__ = ("access", "doc", "function", "is_open", "name", "reply", "request")

    def __init__(
        self, function: Callable[..., Awaitable[R]], *, access: Access, name: str | None = None
    ) -> None:
        if access not in ("read", "write"):
            raise DeclarationError("The access of an operation is read or write.", access=access)
        if not inspect.iscoroutinefunction(function):
            raise DeclarationError(f"An operation is an async function: {_SIGNATURE}.")
        self.name = name or function.__name__
        if not _NAME.fullmatch(str(self.name)):
            raise DeclarationError(
                "The name of an operation is a letter, then lower-case letters, digits and _.",
                operation=self.name,
            )
        self.access: Access = access
        self.function = function
        self.doc = inspect.getdoc(function) or ""
        self.request, self.reply = self._types()
        self.is_open = any(isinstance(each, AnyType) for each in _types_within(self.reply))

    def __call__(self, store: Any, request: Q | None = None, /) -> Awaitable[R]:
        return self.function(store) if self.request is None else self.function(store, request)

    def __repr__(self) -> str:
        return f"Operation({self.name!r})"

    @staticmethod
    def check_call(operation: object, request: object) -> None:
        """Raise UsageError if a program passes a name in place of the operation, or a request of
        another type."""
        if not isinstance(operation, Operation):
            raise UsageError(
                "Pass the operation itself: a function declared with @operation(access=…), which"
                " `operations=` of the schema lists.",
                found=operation,
            )
        if not isinstance(request, operation.request or type(None)):
            raise UsageError(
                "The request of the operation has another type: pass the one that it takes.",
                operation=operation.name,
                needed=None if operation.request is None else operation.request.__name__,
                found=type(request).__name__,
            )

    def check_reply(self, reply: object) -> None:
        """Raise DeclarationError if the function has returned another type than it declares."""
        if not isinstance(reply, self.reply or type(None)):
            raise DeclarationError(
                "The function returns another type than it declares.",
                operation=self.name,
                found=type(reply).__name__,
            )

    def shown(self, reply: Any) -> Any:
        """Return a reply with the members that its type declares: those of a subclass, here or
        within it, are not shown. Raises DeclarationError if a member of any type holds a record
        with private members."""
        self.check_reply(reply)
        if self.reply is None:
            return None
        if self.is_open and (kind := hidden_in(reply)):
            raise _not_shown(self, type=kind.__name__)
        try:
            return msgspec.convert(msgspec.to_builtins(reply), self.reply)
        except (msgspec.ValidationError, TypeError) as error:
            raise DeclarationError(
                "The function returns another type than it declares.",
                operation=self.name,
                reason=str(error),
            ) from error

    def raised(self, error: KeyhouseError) -> KeyhouseError:
        """Return an error that a service has sent as the class of one's own that it had there, if
        the module of the function knows that class; else the error itself."""
        if type(error).type == error.type:
            return error
        for kind in self.function.__globals__.values():
            if isinstance(kind, type) and issubclass(kind, KeyhouseError):
                own: type[KeyhouseError] = kind
                if own.type == error.type:
                    with suppress(TypeError):  # it may have another constructor
                        return own(error.sentence, **error.fields)
        return error

    def _types(self) -> tuple[type[msgspec.Struct] | None, type[msgspec.Struct] | None]:
        """Return the types of the request and of the reply."""
        try:
            hints = get_type_hints(self.function)
        except Exception as error:
            raise DeclarationError(
                "The annotations of an operation cannot be read: declare its types before it, in"
                " the module.",
                operation=self.name,
                reason=str(error),
            ) from None
        parameters = [*inspect.signature(self.function).parameters.values()]
        is_plain = all(each.kind is each.POSITIONAL_OR_KEYWORD for each in parameters)
        if not is_plain or len(parameters) not in (1, 2):
            raise DeclarationError(
                f"An operation takes a store and a request: {_SIGNATURE}.", operation=self.name
            )
        for name in (*(each.name for each in parameters), "return"):
            if name not in hints:
                raise DeclarationError(
                    f"Annotate every parameter of an operation: {_SIGNATURE}.",
                    operation=self.name,
                    parameter=name,
                )
        if not hasattr(hints[parameters[0].name], "transact"):
            raise DeclarationError(
                f"The first parameter of an operation is a Store: {_SIGNATURE}.",
                operation=self.name,
                parameter=parameters[0].name,
            )
        request = self._struct(hints, parameters[1].name) if len(parameters) > 1 else None
        reply = self._struct(hints, "return")
        if len(parameters) > 1 and request is None:
            raise DeclarationError(
                "An operation without a request has one parameter, the store.", operation=self.name
            )
        if reply is not None and "success" in _members(reply):
            raise DeclarationError(
                "A reply has no member `success`: over NATS it says whether there is an error.",
                operation=self.name,
            )
        return request, reply

    def _struct(self, hints: Mapping[str, Any], parameter: str) -> type[msgspec.Struct] | None:
        kind = hints[parameter]
        if kind is type(None):
            return None
        is_struct = isinstance(kind, type) and issubclass(kind, msgspec.Struct)
        if not is_struct or kind.__struct_config__.array_like:
            raise DeclarationError(
                "The request and the reply of an operation are each one Struct, a JSON object, or"
                " None alone.",
                operation=self.name,
                parameter=parameter,
                given=kind,
            )
        struct: type[msgspec.Struct] = kind
        return struct


class Declare(Protocol):
    """Makes an operation of a function, with a request or without one."""

    @overload
    def __call__(self, function: Callable[[Any, Q], Awaitable[R]], /) -> Operation[Q, R]: ...
    @overload
    def __call__(self, function: Callable[[Any], Awaitable[R]], /) -> Operation[None, R]: ...


def operation(*positional: Never, access: Access | None = None, name: str | None = None) -> Declare:
    """Declare an async function as an operation, for `operations=` of a Schema.

    Its parameters are a Store, bound to the caller's space, and a Struct, the request; it returns a
    Struct, the reply, or None. `access` is the scope that a caller needs: a `read` cannot write.
    `name` is by default that of the function.
    """
    if positional or access is None:
        raise DeclarationError(
            'Name the access of an operation: write @operation(access="read") above its function,'
            ' or @operation(access="write").'
        )

    def declare(function: Callable[..., Awaitable[R]], /) -> Operation[Any, R]:
        return Operation(function, access=access, name=name)

    return declare


def check_operations(
    schema: str, operations: tuple[Any, ...], records: Iterable[Record[Any]]
) -> None:
    """Raise DeclarationError for another object, for the name of a generated operation, for two
    operations of one name, and for a reply that would show private members of a record."""
    for operation in operations:
        if not isinstance(operation, Operation):
            raise DeclarationError(
                "An operation is a function that is declared with @operation(access=…).",
                schema=schema,
                given=getattr(operation, "__name__", operation),
            )
        if operation.name in (*OPERATIONS, *METRIC_NAMES):
            raise DeclarationError(
                "Every service has an operation or a metric of this name: give the operation"
                " another with `name=`.",
                schema=schema,
                operation=operation.name,
            )
    names = [operation.name for operation in operations]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise DeclarationError("Two operations have the same name.", schema=schema, names=twice)
    private = [record for record in records if record.private]
    for operation in operations if private else ():
        _check_shown(operation, private)


def _check_shown(operation: Operation[Any, Any], private: list[Record[Any]]) -> None:
    """Raise DeclarationError if a type within the reply is that of a record with private members,
    or a subclass of it."""
    for info in _types_within(operation.reply):
        for record in private:
            kind = getattr(info, "cls", None)
            if isinstance(kind, type) and issubclass(kind, record.type):
                raise _not_shown(operation, record=record.name, private=list(record.private))


def _not_shown(operation: Operation[Any, Any], **fields: Any) -> DeclarationError:
    return DeclarationError(
        "The reply of an operation has a record with private members, which its callers would see:"
        " return a Struct of the members to show.",
        operation=operation.name,
        **fields,
    )


def _types_within(root: type[msgspec.Struct] | None) -> Iterator[Type]:
    """Yield a type and every type within it: those of members, items and alternatives."""
    seen: set[type] = set()
    queue: list[Any] = [] if root is None else [type_info(root)]
    while queue:
        info = queue.pop()
        if isinstance(info, (list, tuple)):
            queue += info
        elif isinstance(info, (Type, Field)):
            kind = getattr(info, "cls", None)
            if isinstance(kind, type):
                if kind in seen:
                    continue
                seen.add(kind)
            if isinstance(info, Type):
                yield info
            queue += [getattr(info, name) for name in info.__struct_fields__]


def _members(kind: type[msgspec.Struct]) -> tuple[str, ...]:
    return kind.__struct_encode_fields__
