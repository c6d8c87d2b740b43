"""Limits of the operations of a served schema."""

from typing import Final

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
