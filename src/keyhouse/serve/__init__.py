"""Serving: what makes a running service of systems. The faces `http` and `nats`, who may ask (`auth`), metrics, settings.

It knows no system: a system hands its `Part` to the `Host` that runs it.
"""

from keyhouse.serve.part import Context, Part
from keyhouse.serve.rates import RateLimiter
from keyhouse.serve.table import read_settings, setting

__all__ = ["Context", "Part", "RateLimiter", "read_settings", "setting"]
