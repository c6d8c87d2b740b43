"""Whether there are traces, decided before anything of them is imported: see `traces`."""

import os
from typing import Any, Final, Protocol

from keyhouse import __version__
from keyhouse.engine import Engine
from keyhouse.service.spec import ServiceSpec

_VARIABLES: Final = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")
"""What every program with OpenTelemetry reads."""


class Tracing(Protocol):
    def engine(self, system: str, engine: Engine) -> Engine: ...
    def part(self, part: ServiceSpec) -> ServiceSpec: ...
    def app(self, app: Any) -> Any: ...
    async def close(self) -> None: ...


def tracing(endpoint: str | None) -> Tracing | None:
    """What traces a service, where a collector is named; ImportError names the extra that it needs."""
    if endpoint is None and not any(os.environ.get(name) for name in _VARIABLES):
        return None
    try:
        from keyhouse.serve.traces import Traces
    except ModuleNotFoundError as error:
        raise ImportError(f"Traces need {error.name}: pip install 'keyhouse[traces]'") from error
    return Traces(endpoint, __version__)
