"""Handlers of pages, made from handlers of values: a page is also shown to a visitor who has not
signed in, whom it leads to the login, and its errors are pages."""

import inspect
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, get_type_hints
from urllib.parse import quote, urlencode

import msgspec

from keyhouse.auth import Caller

__all__ = ["page_handler", "page_location"]

Handler = Callable[..., Awaitable[Any]]


def page_handler(
    handler: Handler,
    call: Callable[[dict[str, Any]], Any],
    returns: Any = None,
    *,
    has_root: bool = False,
) -> Handler:
    """Return a handler with the same arguments that runs `call` with them, without a caller too.

    `returns` replaces the type that the handler returns. `has_root`: `call` also gets the path that
    the app is mounted below, as `root`.
    """

    async def adapted(**arguments: Any) -> Any:
        return await call(arguments)

    hints = get_type_hints(handler, include_extras=True) | {"caller": Caller | None}
    signature = inspect.signature(handler)
    if has_root and "root" not in hints:
        hints["root"] = str
        root = inspect.Parameter("root", inspect.Parameter.KEYWORD_ONLY)
        signature = signature.replace(parameters=[*signature.parameters.values(), root])
    if returns is not None:
        hints["return"] = returns
    adapted.__annotations__ = hints
    adapted.__signature__ = signature  # type: ignore[attr-defined]
    adapted.__doc__ = handler.__doc__
    return adapted


def page_location(service: str, path: str, arguments: dict[str, Any]) -> str:
    """Return the path and query of the page that was asked for."""
    filled = path
    for name, value in arguments.items():
        if isinstance(value, str):
            filled = filled.replace(f"{{{name}}}", quote(value, safe=""))
    query = arguments.get("query")
    given: Sequence[tuple[str, Any]] = ()
    if isinstance(query, msgspec.Struct):
        given = [
            (name, value)
            for name, value in msgspec.to_builtins(query).items()
            if value not in (None, "", 0, False, [])
        ]
    return f"/{service}{filled}" + (f"?{urlencode(given, doseq=True)}" if given else "")
