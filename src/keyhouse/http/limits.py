"""Limits of HTTP requests, responses and connections."""

from typing import Final

HTTP_BODY_BYTES_MAX: Final = 1_024 * 1_024
"""The body of an HTTP request, unless its route or the settings set another limit."""

HTTP_BODY_BYTES_PER_REQUEST: Final = 32 * 1_024
"""A body costs its tenant one request more for each of these: large bodies take memory and time."""

HTTP_PLACES: Final = 256
"""HTTP requests of all tenants of a service that are handled at once, by all workers of a host.
Others wait, by turns."""

HTTP_TENANT_PLACES: Final = 16
"""HTTP requests of one tenant that are handled at once: more clients than a browser opens."""

HTTP_TENANT_WAITING_MAX: Final = 1_000
"""HTTP requests of one tenant that wait for a place. Further ones are rejected."""

RATE_DELAY_SECONDS: Final = 0.1
"""Delay of a rejection by the rate limit: a client that repeats at once costs little."""

HTTP_BODY_BYTES_PER_VALUE: Final = 32
"""A large body may have one JSON value for each of these: an imported entry has 4 in 150 bytes."""

HTTP_LARGE_BODY_VALUES_MAX: Final = 250_000
"""JSON values in a body of any size: an import has 60,000 entries at most. Send several files."""

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

FORM_FIELDS_MAX: Final = 1_000
"""Fields and files of one form."""

OPEN_FILES_MAX: Final = 512
"""Files that are served at once from one folder: half the usual descriptor limit (default)."""

TENANT_EVENT_STREAMS_MAX: Final = 1_000
"""Open event streams of one tenant of a service (of one user, where users take turns), or of one
address without a caller, on one host: a tenth of those of a process (default)."""

EVENT_STREAM_CHECK_SECONDS: Final = 1.0
"""Minimum time between two checks of the session of an event stream."""
