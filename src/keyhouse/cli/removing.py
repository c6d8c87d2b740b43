"""What `keyhouse delete` is asked to delete, and how it is told to whoever must agree."""

import asyncio
from collections.abc import Coroutine

import msgspec

from keyhouse.cli.access import reached, selected_by_key
from keyhouse.cli.asking import ask
from keyhouse.cli.opening import opened
from keyhouse.cli.options import Where
from keyhouse.cli.output import number
from keyhouse.cli.place import Place, place_of_space, service_of, url_of
from keyhouse.cli.progress import Line
from keyhouse.cli.rows import AbsentError, span_of
from keyhouse.cli.target import target
from keyhouse.cli.value import expected
from keyhouse.cli.writing import check_writable, refuse_newer
from keyhouse.engine import Engine
from keyhouse.engines.registry import public_url
from keyhouse.errors import UsageError
from keyhouse.keys import Span
from keyhouse.store import BulkDelete, BulkDeleteResult

_SHOWN_MAX = 3


class Choice(msgspec.Struct, frozen=True):
    """As the options say it."""

    system: str
    key: str | None
    prefix: str | None
    whole_space: bool
    expect: str | None
    where: Where


class Deleted(msgspec.Struct, frozen=True):
    space: str
    records: int
    left: int = 0
    dry_run: bool = False


async def remove(choice: Choice, *, dry_run: bool, yes: bool) -> Deleted:
    """Nothing is touched before the question is answered."""
    if [choice.key is not None, choice.prefix is not None, choice.whole_space].count(True) != 1:
        raise UsageError("Say what to delete: a KEY, or --prefix TEXT, or --whole-space.")
    if choice.expect is not None and choice.key is None:
        raise UsageError("Only one record can be expected at a revision.")
    if choice.key is not None:
        return await _remove_one(choice, choice.key, dry_run=dry_run, yes=yes)
    if (service := service_of(choice.where)) is not None:
        raise UsageError(
            "A service deletes one record at a time: name a KEY, or the rows by --store.",
            service=public_url(service.url),
        )
    url = url_of(choice.system, choice.where.store, choice.where.data)
    place = place_of_space(target(choice.system), choice.where.space)
    async with opened(url, existing=True) as engine:
        return await _remove_many(choice, place, engine, public_url(url), dry_run=dry_run, yes=yes)


async def _remove_one(choice: Choice, key: str, *, dry_run: bool, yes: bool) -> Deleted:
    place, found = selected_by_key(choice.system, key, choice.where)
    check_writable(place, found, key)
    async with reached(choice.system, place, choice.where) as access:
        if await access.get(key) is None:
            raise AbsentError(
                "There is no such row, or it has expired.", key=key, space=place.space
            )
        if dry_run:
            return Deleted(place.space, 1, dry_run=True)
        ask(
            f"Delete {key}, with the rows derived from it, in {_where(place, access.where)}?",
            yes=yes,
        )
        gone = await access.delete(key, found, expected(choice.expect))
        return Deleted(place.space, int(gone))


async def _remove_many(
    choice: Choice, place: Place, engine: Engine, where: str, *, dry_run: bool, yes: bool
) -> Deleted:
    span = span_of(choice.prefix) if choice.prefix is not None else Span()
    await refuse_newer(place.store(engine))
    with Line() as line:
        removal = BulkDelete(
            place.schema,
            engine,
            place.space,
            lambda records: line.say(f"{number(records, 'record')} deleted"),
        )
        count, first = 0, list[str]()
        async for row, _ in removal.records(span):
            count += 1
            first += [row.key] if count <= _SHOWN_MAX else []
        if dry_run or (not count and not choice.whole_space):
            return Deleted(place.space, count, dry_run=dry_run)
        some = (
            f"{number(count, 'record')} ({', '.join(first)}{', …' if count > _SHOWN_MAX else ''})"
        )
        ask(_question(choice, some if count else "no record", _where(place, where)), yes=yes)
        done = await _whole(
            removal, removal.empty() if choice.whole_space else removal.run(span), line
        )
    return Deleted(place.space, done.records, done.left)


async def _whole(
    removal: BulkDelete, work: Coroutine[None, None, BulkDeleteResult], line: Line
) -> BulkDeleteResult:
    """Ctrl-C lets the commit that is under way end, and then says how much is done: neither more nor less."""
    running = asyncio.ensure_future(work)
    try:
        return await asyncio.shield(running)
    except asyncio.CancelledError:
        removal.stop()
        done = await running
        line.note(
            f"{number(done.records, 'record')} deleted, with all derived rows; the others are as they were. "
            "Run the same command again for the rest."
        )
        raise


def _question(choice: Choice, some: str, where: str) -> str:
    if choice.whole_space:
        return f"Delete all that {where} holds: {some}, and every other row?"
    return f"Delete {some}, with the rows derived from them, in {where}?"


def _where(place: Place, where: str) -> str:
    return f"the space {place.space} of {where}"
