"""Settings that every service has: quotas, rate limits, sweep, usage scan, slow operations.

0 has one meaning in all of them: no limit, or switched off.
"""

from typing import Annotated, Protocol

import msgspec

from keyhouse.auth import JwtSettings
from keyhouse.clock import Clock, monotonic
from keyhouse.service.rates import RateLimiter, limiter
from keyhouse.service.shared_limit import SharedLimit
from keyhouse.service.usage import Quota
from keyhouse.settings import setting

__all__ = [
    "AnyTenantSettings",
    "JwtTenantSettings",
    "KeyRingText",
    "QuotaBytes",
    "QuotaKeys",
    "RateBurst",
    "RatePerSecond",
    "RuntimeSettings",
    "SessionHours",
    "SlowSeconds",
    "SweepSeconds",
    "TenantSettings",
    "UnlimitedTenantSettings",
    "UsageScanSeconds",
    "quota",
    "rate_limiter",
]

_NotNegative = msgspec.Meta(ge=0)

QuotaKeys = Annotated[int, _NotNegative, setting("Keys that one tenant may store; 0: unlimited.")]
QuotaBytes = Annotated[
    int, _NotNegative, setting("Bytes of keys and values that one tenant may store; 0: unlimited.")
]
RatePerSecond = Annotated[
    float,
    _NotNegative,
    setting("Requests per second that one tenant may make on average; 0: unlimited."),
]
RateBurst = Annotated[
    int,
    _NotNegative,
    setting("Requests that one tenant may make at once within its rate; 0: one second's worth."),
]
SweepSeconds = Annotated[
    float, _NotNegative, setting("Interval between two sweeps of expired rows; 0: never.")
]
UsageScanSeconds = Annotated[
    float,
    _NotNegative,
    setting("Interval between two counts of all tenants' keys and bytes, for metrics; 0: never."),
]
SlowSeconds = Annotated[
    float, _NotNegative, setting("Slower operations are logged as warnings; 0: never.")
]
SessionHours = Annotated[
    float,
    msgspec.Meta(gt=0),
    setting("Hours after which a session ends, and the cookie of its browser."),
]

KeyRingText = Annotated[
    str | None,
    setting(
        "The key ring of sealed members: its file, which other users must not be able to read, or"
        " its text, as in an environment variable.",
        secret=True,
        path=True,
    ),
]


class UnlimitedTenantSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Of a service whose tenants have no quota."""

    rate_per_second: RatePerSecond = 100.0
    rate_burst: RateBurst = 1_000
    sweep_seconds: SweepSeconds = 300.0
    usage_scan_seconds: UsageScanSeconds = 0.0
    slow_seconds: SlowSeconds = 0.1


class TenantSettings(UnlimitedTenantSettings, frozen=True, kw_only=True):
    quota_keys: QuotaKeys = 0
    quota_bytes: QuotaBytes = 0


class JwtTenantSettings(JwtSettings, frozen=True, kw_only=True):
    """TenantSettings and JwtSettings in one table: a Struct has one base."""

    quota_keys: QuotaKeys = 0
    quota_bytes: QuotaBytes = 0
    rate_per_second: RatePerSecond = 100.0
    rate_burst: RateBurst = 1_000
    sweep_seconds: SweepSeconds = 300.0
    usage_scan_seconds: UsageScanSeconds = 0.0
    slow_seconds: SlowSeconds = 0.1


AnyTenantSettings = UnlimitedTenantSettings | JwtTenantSettings


class RuntimeSettings(Protocol):
    """The settings that every service has."""

    @property
    def rate_per_second(self) -> float: ...
    @property
    def rate_burst(self) -> int: ...
    @property
    def sweep_seconds(self) -> float: ...
    @property
    def slow_seconds(self) -> float: ...


def quota(settings: AnyTenantSettings, *, is_shared: bool = False) -> Quota:
    if isinstance(settings, TenantSettings | JwtTenantSettings):
        return Quota(settings.quota_keys, settings.quota_bytes, is_shared)
    return Quota()


def rate_limiter(
    settings: RuntimeSettings, clock: Clock, shared: SharedLimit | None = None
) -> RateLimiter | None:
    """Return the rate limiter of the settings; None if rates are unlimited. `shared`: other
    processes have the same limit together with this one."""
    if not settings.rate_per_second:
        return None
    burst = settings.rate_burst or None
    return limiter(shared, settings.rate_per_second, burst=burst, clock=monotonic(clock))
