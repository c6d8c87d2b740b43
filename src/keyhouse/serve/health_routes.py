"""What an operator's tools ask over HTTP, beside the systems: /health, /ready and /metrics."""

import asyncio
from collections.abc import Sequence
from typing import Any

from keyhouse import __version__
from keyhouse.http import Response, ResponseSpec, Route
from keyhouse.metrics import Metrics
from keyhouse.serve.health import Health, Readiness


def health_routes(health: Health, metrics: Metrics) -> Sequence[Route]:
    writing = asyncio.Lock()

    async def alive() -> dict[str, str]:
        """Answers as long as the process does; says nothing of the systems."""
        return {"status": "alive", "version": __version__}

    async def ready() -> Response[Readiness]:
        """Whether every system can answer now, and why not."""
        found = await health.readiness()
        return Response(found, 200 if found.ready else 503)

    async def page() -> Response[bytes]:
        """What is counted and measured, as Prometheus reads it."""
        async with (
            writing
        ):  # in a thread, and one at a time: of a thousand plugins it is 15 MB, and takes seconds
            return Response(await asyncio.to_thread(metrics.page), media_type=metrics.content_type)

    readiness: dict[int, Any] = {
        200: Readiness,
        503: ResponseSpec(type=Readiness, about="Some system can't, and which, and why."),
    }
    return (
        Route(method="GET", path="/health", handler=alive, tag="operator"),
        Route(method="GET", path="/ready", handler=ready, replies=readiness, tag="operator"),
        Route(
            method="GET",
            path="/metrics",
            handler=page,
            replies={
                200: ResponseSpec(
                    type=bytes, about="Text for Prometheus.", media_type=metrics.content_type
                )
            },
            tag="operator",
        ),
    )
