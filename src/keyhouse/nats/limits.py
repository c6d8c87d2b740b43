"""Limits of NATS requests, of changes that are pushed, and of the bus."""

from typing import Final

NATS_IN_FLIGHT_MAX: Final = 1_024
"""NATS requests in flight at once, per service."""

NATS_PARTITIONS: Final = 16
"""Connections over which a service receives NATS requests, if its server maps subjects to
partitions. Mappings and permissions of other servers name it: it must not change."""

NATS_PENDING_MAX: Final = 65_536
"""NATS requests that wait to be started, per service. Further ones are rejected with BusyError."""

NATS_PENDING_BYTES_MAX: Final = 64 * 1_024 * 1_024
"""Data of the NATS requests that wait to be started, per service. One tenant may use half of it."""

NATS_TENANT_IN_FLIGHT_MAX: Final = 256
"""NATS requests of one tenant in flight at once: a quarter of all."""

NATS_TENANT_PENDING_MAX: Final = 16_384
"""NATS requests of one tenant that wait to be started: a quarter of all. Further ones are rejected
with BusyError."""

NATS_TENANT_PENDING_FEW: Final = 64
"""Waiting NATS requests up to which a tenant may use the quarter of the queue that is kept free of
floods."""

NATS_TENANT_PUSH_BYTES_MAX: Final = 4 * 1_024 * 1_024
"""Changes of one tenant's watches that wait to be sent. Beyond it, a watch ends; it can resume."""

NATS_PUSH_BYTES_MAX: Final = 64 * 1_024 * 1_024
"""Changes of all watches that wait to be sent, per service."""

NATS_TENANT_PUSH_BYTES_PER_SECOND: Final = 16 * 1_024 * 1_024
"""Changes sent to one tenant's watches. Slower watches get only the newest of several changes of a
key."""

TENANTS_CACHED: Final = 10_000
"""Tenants whose store and usage one service caches. The least recently used are evicted."""

BUS_REQUESTS_MAX: Final = 256
"""Requests over a service's bus in flight at once. Further ones are rejected with BusyError."""

BUS_PENDING_MAX: Final = 1_024
"""Messages of one subscription of the bus that wait for its reader. Further ones are dropped."""

BUS_PENDING_BYTES_MAX: Final = 16 * 1_024 * 1_024
"""Data of the messages of one subscription of the bus that wait for its reader."""
