"""The service layer: everything that a served schema or system needs, implemented once.

It knows no system and no server process.
"""

from keyhouse.service.rates import RateLimiter
from keyhouse.service.spec import ServiceContext, ServiceSpec

__all__ = ["RateLimiter", "ServiceContext", "ServiceSpec"]
