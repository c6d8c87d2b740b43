"""The operations: functions of a store, without HTTP."""

from keyhouse import Store, Transaction
from keyhouse.errors import NotFoundError
from polls.schema import POLL, VOTE, VOTES, Poll, Vote


async def ask(store: Store, poll: Poll) -> Poll:
    """Store a poll under a new id."""
    return (await store.put(POLL, poll)).record


async def vote(store: Store, id: str, viewer: str, option: int) -> None:
    """Store a viewer's vote; it replaces an earlier one."""

    async def work(tx: Transaction) -> None:
        poll = await tx.get(POLL, poll=id)
        if poll is None or not 0 <= option < len(poll.options):
            raise NotFoundError("The poll has no such option.", poll=id, option=option)
        await tx.put(VOTE, Vote(poll=id, viewer=viewer, option=option))

    await store.transact(work)


async def result(store: Store, id: str) -> dict[str, int]:
    """Return the votes of each option."""
    poll = await store.get(POLL, poll=id)
    if poll is None:
        raise NotFoundError("There is no such poll.", poll=id)
    return {
        text: await store.record_count(VOTES, poll=id, option=number)
        for number, text in enumerate(poll.options)
    }
