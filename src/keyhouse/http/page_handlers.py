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
    call: Callable[[str, dict[str, Any]], Any],
    returns: Any = None,
) -> Handler:
    """Return a handler with the same arguments that runs `call` with the root, which is the path
    that the app is mounted below, and the arguments of `handler`. One that takes a caller is also
    called without one.

    `returns` replaces the type that the handler returns.
    """
    hints = get_type_hints(handler, include_extras=True)
    signature = inspect.signature(handler)
    takes_root = "root" in hints

    async def adapted(**arguments: Any) -> Any:
        root = arguments["root"] if takes_root else arguments.pop("root")
        return await call(root, arguments)

    if "caller" in hints:
        hints["caller"] = Caller | None
    if not takes_root:
        hints["root"] = str
        parameter = inspect.Parameter("root", inspect.Parameter.KEYWORD_ONLY)
        signature = signature.replace(parameters=[*signature.parameters.values(), parameter])
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
            pair
            for name, value in msgspec.to_builtins(query).items()
            if value not in (None, "", 0, False, [])
            for pair in (value.items() if isinstance(value, dict) else [(name, value)])
        ]
    return f"/{service}{filled}" + (f"?{urlencode(given, doseq=True)}" if given else "")
