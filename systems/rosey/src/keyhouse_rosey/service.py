"""Plugin storage as a service over NATS. It has no HTTP routes."""

from functools import partial
from typing import Final

from keyhouse.service.metrics import OperationMetrics
from keyhouse.service.operation_log import OperationLog
from keyhouse.service.runtime import ServiceRuntime
from keyhouse.service.spec import Service, ServiceContext, ServiceSpec
from keyhouse_rosey import SYSTEM
from keyhouse_rosey.messages import OPERATIONS
from keyhouse_rosey.operations import Plugin
from keyhouse_rosey.settings import RoseySettings
from keyhouse_rosey.subjects import Subjects

__all__ = ["SERVICE", "make_runtime", "make_spec"]


def build(context: ServiceContext, settings: RoseySettings) -> ServiceSpec:
    return make_spec(settings, make_runtime(context, settings))


def make_runtime(context: ServiceContext, settings: RoseySettings) -> ServiceRuntime[Plugin]:
    return ServiceRuntime(
        SYSTEM,
        context,
        settings,
        partial(Plugin, reply_bytes_max=settings.reply_bytes_max),
        metrics=OperationMetrics(
            "rosey_kv", tuple(OPERATIONS), tenant_label="plugin", has_watches=True
        ),
        log=OperationLog(SYSTEM.name, settings.slow_seconds, prefix="kv", tenant_field="plugin"),
    )


def make_spec(settings: RoseySettings, runtime: ServiceRuntime[Plugin]) -> ServiceSpec:
    subjects = Subjects(runtime, settings)
    return runtime.spec(
        title="Plugin storage",
        about="Settings, counters and sessions of plugins, which use NATS.",
        examples=[
            """keyhouse put rosey theme '"dark"' --space trivia""",
            "keyhouse get rosey theme --space trivia",
        ],
        endpoints=subjects.endpoints(),
        tasks=[subjects.watches.follow_peers],
        queue=settings.queue,
    )


SERVICE: Final = Service(settings=RoseySettings, build=build)
