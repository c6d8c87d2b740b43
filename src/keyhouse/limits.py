"""The limits of the core, each with its unit and its reason.

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
"""Time for which `open_store` waits while another process prepares the space: ten times the lease
of one that was killed."""

CHANGES_KEPT: Final = 100_000
"""Rows and batch ids, of all spaces together, that a watch can resume across, unless the engine's
URL sets `changes_kept=`. The sweep prunes older changes; most engines count commits and so keep
more.
"""

BATCH_ID_BYTES_MAX: Final = 128
"""A batch id (idempotency key) as UTF-8."""

BATCH_ID_KEPT_SECONDS: Final = 24 * 3_600
"""Time for which a repeated batch id is recognised."""
