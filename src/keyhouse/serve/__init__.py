"""Serving: what makes a running service of systems. The faces `http` and `nats`, who may ask (`auth`), metrics, settings.

It knows no system: a system hands its `ServiceSpec` to the `Host` that runs it.
"""

from keyhouse.serve.rates import RateLimiter
from keyhouse.serve.settings_parser import read_settings, setting
from keyhouse.serve.spec import ServiceContext, ServiceSpec

__all__ = ["RateLimiter", "ServiceContext", "ServiceSpec", "read_settings", "setting"]
