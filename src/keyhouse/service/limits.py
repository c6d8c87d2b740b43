"""Limits of services: tenants, served schemas, watches, logins, background operations."""

from typing import Final

READ_ROWS_PER_REQUEST: Final = 100
"""Rows of a large read that cost their tenant one request more. A read of one page, or of several
addresses, is large if it asks for more rows than these."""

READ_BYTES_PER_REQUEST: Final = 64 * 1_024
"""Bytes of a long read that cost their tenant one request more, if they are more than its rows."""

PAGE_REQUESTS_PER_SECOND: Final = 50
"""Requests without a caller that one address may make of a service with pages, on average."""

PAGE_REQUESTS_BURST: Final = 1_000
"""Such requests at once: the files that a page loads count too, and many share an address."""

RATE_TENANTS_MAX: Final = 100_000
"""Tenants in the rate limiter of a process. Beyond it, the eighth that was idle longest is evicted.
"""

LIMIT_BUCKETS: Final = 2**14
"""Buckets of eight slots in the table of limits that workers share: each tenant in use has a slot
for its rate, and one for its event streams. In a full bucket, the slot that can be spared first is
used again."""

TENANT_LABELS_MAX: Final = 1_000
"""Tenants with separate metrics. Further ones share the label `(others)`: a client must not
exhaust the memory with names."""

USAGE_AGE_SECONDS_MAX: Final = 300
"""Age of a tenant's count of keys and bytes at which a write counts again: other processes write
too, and rows expire."""

USAGE_NEAR_SECONDS_MAX: Final = 10
"""Age of the count of a tenant that has used nine tenths of its quota at which a write counts
again, in a process that has the quota to itself: other programs may write too."""

USAGE_RECOUNT_SECONDS_MIN: Final = 1
"""Age of a count at which it is repeated before a quota rejects a write."""

GRANT_SECONDS: Final = 60
"""Time for which a process may grow what a tenant stores by what it was granted, if several
processes write for the tenant."""

GRANT_MARGIN_SECONDS: Final = 10
"""Time before the end of a grant at which its process stops using it: clocks may differ by it."""

SWEEP_ROWS_MAX: Final = 100_000
"""Rows of one sweep. If more have expired, the next one starts a second later."""

LOG_TEXT_CHARS_MAX: Final = 255
"""A caller's text in a log line. Longer text is cut; a key fits."""

TENANT_WATCHES_MAX: Final = 64
"""Active watches of one tenant over NATS, in one process."""

WATCHES_MAX: Final = 10_000
"""Active watches of all tenants over NATS, in one process: a client allowed to act as any tenant
must not exhaust the memory."""

PASSWORD_BYTES_MAX: Final = 1_024
"""A password: longer than any phrase."""

PASSWORD_HASHES_MAX: Final = 2
"""Passwords that are hashed at once: each takes 64 MiB and a core for a tenth of a second. One core
is left to requests."""

PASSWORD_HASHES_PENDING_MAX: Final = 32
"""Logins that wait to be hashed, for some seconds at most (default)."""

LOGIN_ENTRIES_MAX: Final = 100_000
"""Accounts, and addresses, whose failed logins are counted (default)."""

EVENT_STREAMS_MAX: Final = 10_000
"""Open event streams of one service over HTTP, in one process (default)."""

EVENT_STREAM_BYTES_MAX: Final = 256 * 1_024
"""Unsent bytes of one event stream; beyond it the changes are read again when the client has caught
up, and several changes of one key become the newest (default)."""

WATCH_SUBJECT_CHARS_MAX: Final = 255
"""The subject that a watch publishes to."""

BLOCKING_THREADS_MAX: Final = 8
"""Blocking calls that run in threads at once, in one process."""

BLOCKING_PENDING_MAX: Final = 256
"""Blocking calls that wait for a thread, in one process. More are rejected with BusyError."""

OPERATIONS_PENDING_MAX: Final = 100
"""Background operations of one space that wait or run. Further ones are rejected with BusyError."""

OPERATION_ATTEMPTS_MAX: Final = 5
"""Processes that may die in one chunk of a background operation; then it is interrupted."""

OPERATION_LINES_MAX: Final = 10_000
"""Log lines of one background operation. Further ones are dropped."""

OPERATION_LINE_CHARS_MAX: Final = 2_000
"""A log line of a background operation. Longer ones are cut."""
