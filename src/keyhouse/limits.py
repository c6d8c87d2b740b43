"""Every limit, with its unit and where it comes from. No number that refuses a caller lives elsewhere.

The limits on one key and one value hold on every engine, so that a call refused on one is refused on all. How much
fits in one commit differs by engine and is in its `Capabilities`.
"""

from typing import Final

KEY_BYTES_MAX: Final = 1_024
"""A key as UTF-8. DynamoDB's sort key ends here; PostgreSQL's index would at 2,704."""

SPACE_BYTES_MAX: Final = 255
"""A space's name as UTF-8. A NATS bucket or a file name made from it must still fit."""

VALUE_BYTES_MAX: Final = 380 * 1_024
"""A value as compact JSON. DynamoDB's item ends at 400 KB, names and key included."""

DOCUMENT_DEPTH_MAX: Final = 128
"""Nested arrays and objects in a value, counted before parsing: deeper ones exhaust a recursive parser."""

INTEGER_DIGITS_MAX: Final = 4_000
"""Digits of one integer. Python refuses to print more than 4,300; up to here integers are exact."""

COUNTER_MAX: Final = 2**63 - 1
"""A counter, either sign: a signed 64-bit integer on every engine."""

TTL_SECONDS_MAX: Final = 2**31 - 1
"""A time to live: 68 years, a signed 32-bit integer."""

EXPIRES_MAX: Final = 253_402_300_799_999
"""When a row goes, in the clock's milliseconds: the end of the year 9999, behind which no time can be written."""

COMMIT_ROWS_MAX: Final = 10_000
"""Rows in one commit on an engine that has no limit of its own."""

COMMIT_BYTES_MAX: Final = 64 * 1_024 * 1_024
"""Key and value bytes in one commit on an engine that has no limit of its own."""

PAGE_ROWS_MAX: Final = 10_000
"""Rows in one page of a scan."""

TRANSACTION_ATTEMPTS_MAX: Final = 200
"""Tries of one transaction that keeps losing races, before the caller is told."""

CHANGES_KEPT: Final = 100_000
"""Rows and batch ids, of all spaces together, behind which a watch can still be resumed. Older changes are pruned by the
sweep; most engines count commits, and so keep more."""

BATCH_ID_BYTES_MAX: Final = 128
"""An idempotency key."""

BATCH_ID_KEPT_SECONDS: Final = 24 * 3_600
"""How long a repeated idempotency key is recognised."""

HTTP_BODY_BYTES_MAX: Final = 1_024 * 1_024
"""The body of an HTTP request, unless its route or the settings say otherwise. The largest value fits with room."""

HTTP_BODY_BYTES_PER_REQUEST: Final = 32 * 1_024
"""A body counts as one request more, towards its tenant's rate, for each of these: what is large takes memory and time."""

HTTP_BODY_VALUES_MAX: Final = 1_000_000
"""Values in the body of an HTTP request: each takes up to 100 bytes of memory, and time of the one event loop. Only a large
import or batch can hold more."""

HTTP_BODY_BYTES_PER_VALUE: Final = 32
"""A body of more than a million of these may hold a value for each: an entry of an import has four, and 150 bytes."""

HTTP_HEAD_BYTES_MAX: Final = 32 * 1_024
"""The address and the headers of an HTTP request. The longest token fits four times; proxies allow about as much."""

HTTP_HEAD_SECONDS_MAX: Final = 10.0
"""From a connection, or the first byte of a request, to the end of its headers, unless the settings say otherwise."""

HTTP_STALL_SECONDS_MAX: Final = 60.0
"""How long a client may take nothing of an answer that waits for it, unless the settings say otherwise."""

HTTP_UNSENT_BYTES_MAX: Final = 128 * 1_024 * 1_024
"""What clients have not taken of their answers, over all connections. Beyond it the slowest is cut off."""

REQUEST_ID_CHARS_MAX: Final = 64
"""A request id that a client sends. A longer one is not taken over: it would fill the log."""

TOKEN_BYTES_MAX: Final = 8_192
"""A token, as it is sent. HTTP servers end a header about here."""

TOKENS_KEPT: Final = 10_000
"""Verified tokens that are remembered, so that the same one is not verified again on each request."""

SECRET_BYTES_MIN: Final = 32
"""A secret that signs tokens: as long as the hash of HS256 (RFC 7518, 3.2)."""

JWKS_BYTES_MAX: Final = 1_024 * 1_024
"""A key set that is fetched. Real ones have some KB."""

JWKS_SECONDS_MAX: Final = 5.0
"""From the start of a fetch of a key set to its end. Who waits for a key waits no longer."""

RATE_TENANTS_MAX: Final = 100_000
"""Tenants whose rate is remembered. Beyond it those that asked the longest ago start afresh, an eighth of them."""
