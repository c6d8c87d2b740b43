"""Plugin storage as a service: messages over NATS, and the operator's view over HTTP."""

from functools import partial
from typing import Final

from keyhouse.auth import jwt_auth
from keyhouse.service.metrics import OperationMetrics
from keyhouse.service.operation_log import OperationLog
from keyhouse.service.runtime import ServiceRuntime
from keyhouse.service.spec import Service, ServiceContext, ServiceSpec
from keyhouse.settings import read_settings
from keyhouse.systems.rosey import SYSTEM
from keyhouse.systems.rosey.messages import OPERATIONS
from keyhouse.systems.rosey.operations import Plugin
from keyhouse.systems.rosey.settings import OPERATOR_PATTERN, RoseySettings
from keyhouse.systems.rosey.subjects import Subjects
from keyhouse.systems.rosey.view import SCOPE, View

__all__ = ["SERVICE", "build", "make_runtime", "make_spec"]


def build(context: ServiceContext) -> ServiceSpec:
    settings = read_settings(RoseySettings, context.settings, table=SYSTEM.name)
    return make_spec(context, settings, make_runtime(context, settings))


def make_runtime(context: ServiceContext, settings: RoseySettings) -> ServiceRuntime[Plugin]:
    return ServiceRuntime(
        SYSTEM,
        context,
        settings,
        partial(Plugin, reply_bytes_max=settings.reply_bytes_max),
        metrics=OperationMetrics("rosey_kv", OPERATIONS, tenant_label="plugin", has_watches=True),
        log=OperationLog(SYSTEM.name, settings.slow_seconds, prefix="kv", tenant_field="plugin"),
    )


def make_spec(
    context: ServiceContext, settings: RoseySettings, runtime: ServiceRuntime[Plugin]
) -> ServiceSpec:
    clock, pattern = context.engine.clock, OPERATOR_PATTERN
    return runtime.spec(
        title="Plugin storage",
        about="The operator's view of what plugins store. Plugins themselves use NATS.",
        examples=[
            """nats req db.kv.trivia.set '{"key": "theme", "value": "dark"}'""",
            "keyhouse token rosey --operator",
        ],
        routes=View(runtime).routes(),
        auth=jwt_auth(
            settings, context.data, system=SYSTEM.name, tenant_pattern=pattern, clock=clock
        ),
        endpoints=Subjects(runtime, settings).endpoints(),
        queue=settings.queue,
    )


SERVICE: Final = Service(
    settings=RoseySettings, build=build, tenant_pattern=OPERATOR_PATTERN, operator_scopes=(SCOPE,)
)
