"""The routes of a service as operations: each is measured and logged under its name in the route
table, so that no route can be forgotten."""

import re
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from functools import wraps
from time import perf_counter
from typing import Any

from msgspec.structs import replace

from keyhouse.errors import DeclarationError
from keyhouse.http import Route
from keyhouse.http.router import path_fields
from keyhouse.service.metrics import OperationMetrics
from keyhouse.service.operation_log import OperationLog, error_code

__all__ = ["RouteTable", "measured_call", "measured_routes", "page_table"]

Call = Callable[..., Awaitable[Any]]

RouteTable = Mapping[str, Route] | Sequence[tuple[str, Route]]
"""Routes by the name of their operation; as pairs, where several routes are one operation."""


def measured_routes(
    table: RouteTable, metrics: OperationMetrics, log: OperationLog
) -> Sequence[Route]:
    """Return the routes with handlers that are measured and logged; files are left as they are."""
    named = table.items() if isinstance(table, Mapping) else table
    return [
        route if _is_file(route) else _measured(operation, route, metrics, log)
        for operation, route in named
    ]


def page_table(pages: Iterable[Route]) -> Mapping[str, Route]:
    """Return pages and their files by name, from method and path: `page_books_id` shows a page,
    `form_books_id_edit` takes its form."""
    table: dict[str, Route] = {}
    for route in pages:
        path = re.sub(r"\W+", "_", route.path).strip("_") or "home"
        name = f"{'page' if route.method == 'GET' else 'form'}_{path.lower()}"
        if name in table:
            raise DeclarationError("Two pages have the same operation.", operation=name)
        table[name] = route
    return table


def _is_file(route: Route) -> bool:
    """Return True for a file that pages load: it has no caller, and no page for errors."""
    return route.scope is None and not route.listed and route.error_page is None


def _measured(operation: str, route: Route, metrics: OperationMetrics, log: OperationLog) -> Route:
    fields = tuple(path_fields(route.path))
    handler = measured_call(operation, route.handler, metrics, log, fields)
    return replace(route, handler=handler, operation=operation)


def measured_call(
    operation: str, call: Call, metrics: OperationMetrics, log: OperationLog, fields: Sequence[str]
) -> Call:
    """Return a call that is measured and logged. `fields` are the arguments that describe it in the
    log: those of a path, never a body."""
    metrics.add_operation(operation)
    total = None if metrics.has_tenants else metrics.timing(operation, "")

    @wraps(call)
    async def measured(**arguments: Any) -> Any:
        start = perf_counter()
        try:
            response = await call(**arguments)
        except Exception as error:
            metrics.failed(_tenant(arguments), error_code(error))
            raise
        seconds = perf_counter() - start
        timing = total or metrics.timing(operation, _tenant(arguments))
        timing.add(seconds)
        if seconds >= log.logged_from:
            described = {name: arguments[name] for name in fields}
            log.done(operation, _tenant(arguments), seconds, described)
        return response

    return measured


def _tenant(arguments: Mapping[str, Any]) -> str:
    caller = arguments.get("caller")
    return "" if caller is None else caller.tenant
