"""Sealed members of a library: the email of a user, where the service has a key ring.

The index by email then holds an HMAC. A library that was written without a key ring is sealed when
the service starts with one; so is what an older key has sealed.
"""

from keyhouse.engine import Span
from keyhouse.errors import UsageError
from keyhouse.keys import normal
from keyhouse.store import Entry, Store, Transaction, forget_job, reseal, run_job
from keyhouse.systems.audiobooks.records import User
from keyhouse.systems.audiobooks.schema import USER

__all__ = ["check_sealed", "seal_users"]

SEAL_JOB = "seal-emails"
_EMAILS = "idx:user:email:"


async def check_sealed(store: Store) -> None:
    """Raise UsageError if the library has sealed members, and the service no key ring."""
    if store.key_ring is None:
        async for _, row in store.record_rows(USER):
            if b'"$enc"' in row.value:
                raise UsageError(
                    "The library has sealed members: set `key_ring` to the file of its keys.",
                    library=store.space,
                )


async def seal_users(store: Store) -> None:
    """Seal every email with the current key, and replace index rows that hold one in clear."""
    start = store.schema.text_before(store.space) + _EMAILS
    page = await store.row_page(Span.prefix(start), limit=1_000, keys_only=True)
    if page.more or any(store.find(row.key) is None for row in page.rows):

        async def step(tx: Transaction, entry: Entry[User]) -> None:
            if entry.record.email:
                tx.write(f"{start}{normal(entry.record.email)}", None)
                await tx.rewrite(USER, entry)

        await run_job(store, SEAL_JOB, USER, step)
        await store.transact(lambda tx: forget_job(tx, store, SEAL_JOB))
    await reseal(store)
