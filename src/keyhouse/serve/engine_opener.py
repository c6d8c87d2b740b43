"""Opens the engines of services: each system's own, and those that a service asks for."""

import asyncio
from contextlib import AsyncExitStack
from functools import partial
from typing import Any, Final, Protocol

import structlog

from keyhouse import open_engine
from keyhouse.engine import Engine
from keyhouse.engines.registry import LoadingEngine, ServerEngine, public_url
from keyhouse.errors import KeyhouseError, UnavailableError, UsageError
from keyhouse.serve.health import Health
from keyhouse.serve.metrics import Metrics
from keyhouse.serve.nats_access import NatsAccess
from keyhouse.service.spec import ServiceSpec
from keyhouse.service.worker import ALONE, Worker
from keyhouse.settings.engine_urls import is_own_nats, make_folder
from keyhouse.settings.sources import LoadedSettings

ENGINE_TIMEOUT_SECONDS: Final = 15.0
"""Timeout for opening an engine, which may have to create tables."""

PROGRESS_SECONDS: Final = 2.0
"""Interval of the log lines while an engine does not answer yet."""

RETRY_SECONDS: Final = 0.5
"""Delay before an engine that was unavailable is asked again."""

PROBE: Final = ("keyhouse-ready", ("ready",))
"""A row that is never written: reading it shows that the engine responds."""

_log = structlog.get_logger("keyhouse.serve")


class Tracer(Protocol):
    """`keyhouse.serve.tracing.Tracing`, which needs libraries that are not always installed."""

    def engine(self, system: str, engine: Engine) -> Engine: ...
    def service(self, spec: ServiceSpec) -> ServiceSpec: ...
    def app(self, app: Any) -> Any: ...
    async def close(self) -> None: ...


class EngineOpener:
    """Opened engines are measured, traced, part of their system's readiness, and closed by
    `stack`."""

    def __init__(
        self,
        loaded: LoadedSettings,
        metrics: Metrics,
        health: Health,
        nats: NatsAccess,
        tracing: Tracer | None,
        stack: AsyncExitStack,
        worker: Worker = ALONE,
    ) -> None:
        self._worker = worker
        self._loaded = loaded
        self._metrics = metrics
        self._health = health
        self._nats = nats
        self._tracing = tracing
        self._stack = stack
        self._required: list[tuple[str, Engine]] = []

    async def open_own(self, system: str, *, alone: bool) -> Engine:
        """Open the engine that the settings or the system's declaration name.

        `alone`: no other system is served.
        """
        loaded = self._loaded
        own, common = loaded.engines.get(system), loaded.settings.engine
        if (url := own or common) is not None:
            make_folder(url)
        source = loaded.sources.get(f"{system}.engine" if own else "engine")
        return await self.open(
            loaded.engine_url(system, alone=alone), system, system, source=source
        )

    async def open(
        self,
        url: str,
        system: str,
        label: str,
        *,
        source: str | None = None,
        is_required: bool = True,
    ) -> Engine:
        """Open an engine. `label` names it in metrics; `source` is the setting that named its
        URL. Without `is_required` it is not part of the readiness."""
        try:
            location = await self._nats.engine_url(url) if is_own_nats(url) else url
            async with asyncio.timeout(ENGINE_TIMEOUT_SECONDS):
                opened = await open_engine(location)
        except KeyhouseError as error:
            error.fields["system"] = system
            if source is not None:
                error.fields["source"] = source
            raise
        except TimeoutError:
            raise UnavailableError(
                "The engine does not respond: check it, or choose another with --engine.",
                engine=public_url(url),
                system=system,
            ) from None
        self._stack.push_async_callback(opened.close)
        if self._worker.count > 1 and not opened.capabilities.shared:
            raise UsageError(
                "This engine is for one process: use SQLite, PostgreSQL, NATS or DynamoDB, or"
                " --workers 1.",
                engine=public_url(url),
                system=system,
                workers=self._worker.count,
            )
        self._log_opened(opened, system, label, public_url(location))
        if is_required and isinstance(opened, ServerEngine):
            self._health.add(system, opened.connect)
        if is_required and isinstance(opened, LoadingEngine):
            self._health.add(system, partial(_check_loaded, opened), first=True)
        if is_required:
            self._required.append((label, opened))
        if self._tracing is not None:
            opened = self._tracing.engine(label, opened)
        engine = self._metrics.served(label, opened)
        if is_required:
            self._health.add(system, lambda: engine.read(*PROBE))
        return engine

    async def wait_loaded(self) -> None:
        """Wait until every engine of a system answers reads; log the progress meanwhile."""
        await asyncio.gather(*(_wait_loaded(label, each) for label, each in self._required))

    def _log_opened(self, engine: Engine, system: str, label: str, url: str) -> None:
        durable = engine.capabilities.durable
        named = {} if label == system else {"name": label}
        _log.info("engine open", system=system, engine=url, durable=durable, **named)
        if not durable:
            _log.warning(
                "acknowledged writes may be lost if the machine fails: see keyhouse doctor",
                system=system,
                **named,
            )


async def _check_loaded(engine: LoadingEngine) -> None:
    loaded, total = engine.loaded()
    if loaded < total:
        raise UnavailableError("The engine still loads its keys.", loaded=loaded, total=total)


async def _wait_loaded(label: str, engine: Engine) -> None:
    answering = asyncio.ensure_future(_wait_answer(engine))
    try:
        while not (await asyncio.wait([answering], timeout=PROGRESS_SECONDS))[0]:
            counts = {}
            if isinstance(engine, LoadingEngine):
                counts["loaded"], counts["total"] = engine.loaded()
            _log.info("waiting for the engine", system=label, **counts)
        answering.result()
    finally:
        answering.cancel()


async def _wait_answer(engine: Engine) -> None:
    while True:
        try:
            await engine.read(*PROBE)
        except UnavailableError:
            await asyncio.sleep(RETRY_SECONDS)
        except KeyhouseError:  # it does answer: /ready has the reason
            return
        else:
            return
