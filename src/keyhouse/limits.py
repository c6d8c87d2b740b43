"""All limits, each with its unit and its reason.

The limits on one key and one value are the same on every engine, so that a call rejected on one is
rejected on all. The size of a commit depends on the engine and is in its `Capabilities`.
"""

from typing import Final

KEY_BYTES_MAX: Final = 1_024
"""A key as UTF-8: the maximum of DynamoDB's sort key. PostgreSQL's index allows 2,704."""

SPACE_BYTES_MAX: Final = 255
"""A space's name as UTF-8: a NATS bucket or a file can be named after it."""

VALUE_BYTES_MAX: Final = 380 * 1_024
"""A value as compact JSON. A DynamoDB item has at most 400 KB, with its key and attribute names."""

COMBINING_MARKS_MAX: Final = 30
"""Combining marks in a row in a text that is normalized: Unicode's stream-safe text (UAX 15). The
longest that a language needs has 18. Normalizing a run takes the square of its length."""

NORMALIZED_CHARS_MAX: Final = 16_384
"""Characters of a text that is normalized: 16 times the longest key, for titles that a key cuts."""

NORMAL_EXPANSION_MAX: Final = 4
"""Characters of a normal form for each one of its text, and 64 more: U+FDFA alone becomes 18."""

DOCUMENT_DEPTH_MAX: Final = 128
"""Nested arrays and objects in a value, counted before parsing: a recursive parser has a limit."""

INTEGER_DIGITS_MAX: Final = 4_000
"""Digits of one integer. Integers up to here are exact; Python does not print more than 4,300."""

COUNTER_MAX: Final = 2**63 - 1
"""A counter, positive or negative: a signed 64-bit integer on every engine."""

TTL_SECONDS_MAX: Final = 2**31 - 1
"""A time to live: 68 years, a signed 32-bit integer."""

EXPIRES_MAX: Final = 253_402_300_799_999
"""The expiry of a row, in the clock's milliseconds: the end of the year 9999."""

COMMIT_ROWS_MAX: Final = 10_000
"""Rows in one commit, on an engine without a lower limit."""

COMMIT_BYTES_MAX: Final = 64 * 1_024 * 1_024
"""Key and value bytes in one commit, on an engine without a lower limit."""

PAGE_ROWS_MAX: Final = 10_000
"""Rows in one page of a scan."""

TRANSACTION_ATTEMPTS_MAX: Final = 200
"""Attempts of a transaction that keeps losing races, before it raises ContentionError."""

OPEN_WAIT_SECONDS: Final = 120.0
"""Time for which `open_store` waits while another process prepares the space: twice the lease of
one that was killed."""

CHANGES_KEPT: Final = 100_000
"""Rows and batch ids, of all spaces together, that a watch can resume across. The sweep prunes
older changes; most engines count commits and so keep more.
"""

BATCH_ID_BYTES_MAX: Final = 128
"""A batch id (idempotency key) as UTF-8."""

BATCH_ID_KEPT_SECONDS: Final = 24 * 3_600
"""Time for which a repeated batch id is recognised."""

SERVED_PAGE_ITEMS_MAX: Final = 500
"""Items in one page of a list of a served schema."""

SERVED_PAGE_BYTES_MAX: Final = 4 * 1_024 * 1_024
"""Bytes of items after which a page of a list of a served schema ends, with a cursor."""

SERVED_PAGE_KEYS_MAX: Final = 1_000
"""Keys in one page of a list of keys of a served schema."""

SERVED_CLEAR_RECORDS: Final = 1_000
"""Records that one request to clear a space of a served schema deletes; the client repeats it."""

SERVED_BATCH_OPERATIONS_MAX: Final = 500
"""Operations in one batch of a served schema."""

IDEMPOTENCY_KEY_CHARS_MAX: Final = 255
"""An `Idempotency-Key` of a request to a served schema."""

HTTP_BODY_BYTES_MAX: Final = 1_024 * 1_024
"""The body of an HTTP request, unless its route or the settings set another limit."""

HTTP_BODY_BYTES_PER_REQUEST: Final = 32 * 1_024
"""A body costs its tenant one request more for each of these: large bodies take memory and time."""

READ_ROWS_PER_REQUEST: Final = 100
"""Rows of a long read that cost their tenant one request more. A read of one page, or of several
addresses, costs as much if it has more rows than these."""

READ_BYTES_PER_REQUEST: Final = 64 * 1_024
"""Bytes of a long read that cost their tenant one request more, if they are more than its rows."""

HTTP_PLACES: Final = 256
"""HTTP requests of all tenants of a service that are handled at once. Others wait, by turns."""

HTTP_TENANT_PLACES: Final = 16
"""HTTP requests of one tenant that are handled at once: more clients than a browser opens."""

HTTP_TENANT_WAITING_MAX: Final = 1_000
"""HTTP requests of one tenant that wait for a place. Further ones are rejected."""

RATE_DELAY_SECONDS: Final = 0.1
"""Delay of a rejection by the rate limit: a client that repeats at once costs little."""

HTTP_BODY_VALUES_MAX: Final = 100_000
"""JSON values in the body of an HTTP request, or in a NATS message: they are decoded in one step,
and 100,000 members of an object hold up other requests for a tenth of a second."""

HTTP_BODY_BYTES_PER_VALUE: Final = 32
"""A large body may have one JSON value for each of these: an imported entry has 4 in 150 bytes."""

HTTP_LARGE_BODY_VALUES_MAX: Final = 250_000
"""JSON values in a body of any size: an import has 60,000 entries at most. Send several files."""

SLOW_NUMBERS_MAX: Final = 1_000
"""Numbers with an exponent of three digits in one request: a float near 1e-308 or 1e308 takes 300
times as long to parse as others. 1,000 digits of a longer integer count as ten."""

HTTP_HEAD_BYTES_MAX: Final = 32 * 1_024
"""Request line and headers of an HTTP request: four times the longest token, as proxies allow.
Also its trailers, and the bytes of a chunked body between two pieces of content."""

HTTP_DISCARD_BYTES_MAX: Final = 64 * 1_024
"""Bytes of a body that are read after the response to its request; then the connection closes."""

HTTP_HEADER_TIMEOUT_SECONDS: Final = 10.0
"""Time from the connection, or the first byte of a request, to the end of its headers (default)."""

HTTP_KEEP_ALIVE_SECONDS: Final = 75
"""Time that a connection is kept without a request. It is longer than clients and proxies keep one
(60 seconds at most, by default): a server that closes first can meet a request that is on its way.
"""

HTTP_WRITE_TIMEOUT_SECONDS: Final = 60.0
"""Time in which a client must read some of a response that waits for it (default)."""

HTTP_WRITE_BUFFER_BYTES_MAX: Final = 96 * 1_024 * 1_024
"""Unsent bytes of all responses. Beyond it, the slowest client is disconnected."""

HTTP_STREAM_BYTES: Final = 1_024 * 1_024
"""Counted as unsent for each streamed response that waits for its client: the page that it has
read, the piece that it has encoded, and the objects in between."""

HTTP_STREAM_COPIES: Final = 4
"""Factor of the bytes that such a response has to write, counted instead if that is more. A
large document is there as a row, as objects and as JSON."""

REQUEST_ID_CHARS_MAX: Final = 64
"""A request id sent by a client. A longer one is ignored: it would fill the log."""

TOKEN_BYTES_MAX: Final = 8_192
"""A token as it is sent: about the longest header that HTTP servers accept."""

TOKENS_CACHED_MAX: Final = 10_000
"""Verified tokens in the cache."""

SECRET_BYTES_MIN: Final = 32
"""A secret that signs tokens: the length of the HS256 hash (RFC 7518, 3.2)."""

SECRET_CHARS_MIN: Final = 8
"""Different characters of such a secret. A random one of 32 hexadecimal digits has 9 or more in all
but one of 50,000."""

JWKS_BYTES_MAX: Final = 1_024 * 1_024
"""A fetched JWKS document. Real ones have a few KB."""

JWKS_TIMEOUT_SECONDS: Final = 5.0
"""Timeout of a JWKS fetch, and of requests that wait for it."""

RATE_TENANTS_MAX: Final = 100_000
"""Tenants in the rate limiter. Beyond it, the eighth that was idle longest is evicted."""

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

TENANT_LABELS_MAX: Final = 1_000
"""Tenants with separate metrics. Further ones share the label `(others)`: a client must not
exhaust the memory with names."""

USAGE_AGE_SECONDS_MAX: Final = 300
"""Age of a tenant's count of keys and bytes at which a write counts again: other processes write
too, and rows expire."""

USAGE_NEAR_SECONDS_MAX: Final = 10
"""Age of the count of a tenant that has used nine tenths of its quota at which a write counts
again: each further process exceeds the quota by what it writes in this time."""

USAGE_RECOUNT_SECONDS_MIN: Final = 1
"""Age of a count at which it is repeated before a quota rejects a write."""

SWEEP_ROWS_MAX: Final = 100_000
"""Rows of one sweep. If more have expired, the next one starts a second later."""

LOG_TEXT_CHARS_MAX: Final = 255
"""A caller's text in a log line. Longer text is cut; a key fits."""

TENANT_WATCHES_MAX: Final = 64
"""Active watches of one tenant over NATS, in one process."""

WATCHES_MAX: Final = 10_000
"""Active watches of all tenants over NATS, in one process: a client allowed to act as any tenant
must not exhaust the memory."""

FORM_FIELDS_MAX: Final = 1_000
"""Fields and files of one form."""

PASSWORD_BYTES_MAX: Final = 1_024
"""A password: longer than any phrase."""

PASSWORD_HASHES_MAX: Final = 2
"""Passwords that are hashed at once: each takes 64 MiB and a core for a tenth of a second. One core
is left to requests."""

PASSWORD_HASHES_PENDING_MAX: Final = 32
"""Logins that wait to be hashed, for some seconds at most (default)."""

LOGIN_ENTRIES_MAX: Final = 100_000
"""Accounts, and addresses, whose failed logins are counted (default)."""

OPEN_FILES_MAX: Final = 512
"""Files that are served at once from one folder: half the usual descriptor limit (default)."""

EVENT_STREAMS_MAX: Final = 10_000
"""Open event streams of one service over HTTP, in one process (default)."""

TENANT_EVENT_STREAMS_MAX: Final = 1_000
"""Open event streams of one tenant of a service (of one user, where users take turns), or of one
address without a caller, in one process: a tenth of all (default)."""

EVENT_STREAM_CHECK_SECONDS: Final = 1.0
"""Minimum time between two checks of the session of an event stream."""

EVENT_STREAM_BYTES_MAX: Final = 256 * 1_024
"""Unsent bytes of one event stream; beyond it the changes are read again when the client has caught
up, and several changes of one key become the newest (default)."""

WATCH_SUBJECT_CHARS_MAX: Final = 255
"""The subject that a watch publishes to."""

BLOCKING_THREADS_MAX: Final = 8
"""Blocking calls that run in threads at once, in one process."""

BLOCKING_PENDING_MAX: Final = 256
"""Blocking calls that wait for a thread, in one process. More are rejected with BusyError."""

BUS_REQUESTS_MAX: Final = 256
"""Requests over a service's bus in flight at once. Further ones are rejected with BusyError."""

BUS_PENDING_MAX: Final = 1_024
"""Messages of one subscription of the bus that wait for its reader. Further ones are dropped."""

BUS_PENDING_BYTES_MAX: Final = 16 * 1_024 * 1_024
"""Data of the messages of one subscription of the bus that wait for its reader."""

OPERATIONS_PENDING_MAX: Final = 100
"""Background operations of one space that wait or run. Further ones are rejected with BusyError."""

OPERATION_ATTEMPTS_MAX: Final = 5
"""Processes that may die in one chunk of a background operation; then it is interrupted."""

OPERATION_LINES_MAX: Final = 10_000
"""Log lines of one background operation. Further ones are dropped."""

OPERATION_LINE_CHARS_MAX: Final = 2_000
"""A log line of a background operation. Longer ones are cut."""

SEARCH_QUERY_CHARS_MAX: Final = 1_000
"""The query of a full-text search."""

SEARCH_PIECE_CHARS: Final = 4_096
"""Characters of a text that are folded in one step: a thread that folds a long text lets others run
in between."""

SEARCH_HITS_MAX: Final = 1_000
"""Hits in one page of a full-text search."""

SEARCH_SPACES_OPEN_MAX: Final = 64
"""Spaces whose search file one process keeps open: each has two connections and a watch."""
