"""What the commands over data ask for, answered by a store or by a running service: the same words either way."""

from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import aclosing, asynccontextmanager
from typing import Protocol

from keyhouse.cli.opening import Rehearsal, opened
from keyhouse.cli.options import Query, Selection, Where
from keyhouse.cli.place import Place, named_space, place_of_key, place_of_space, service_of, url_of
from keyhouse.cli.query import counted, found, span
from keyhouse.cli.rows import Shown, filter_of, shown, shown_change, shown_told, span_of
from keyhouse.cli.target import target
from keyhouse.cli.writing import Put, check_writable, completed, put_value, refuse_newer
from keyhouse.engine import Engine, check_since
from keyhouse.engines.registry import public_url
from keyhouse.errors import EngineError
from keyhouse.schema import KeyMatch
from keyhouse.service.remote import Remote
from keyhouse.store import Unset
from keyhouse.systems.registry import load_remote


class Access(Protocol):
    """The rows of one place. `where` is for people."""

    where: str

    async def get(self, key: str) -> Shown | None: ...

    def rows(
        self, query: Query, *, keys_only: bool = False, resolve: bool = False
    ) -> AsyncIterator[Shown]: ...

    async def count(self, selection: Selection) -> int: ...

    def watch(
        self, selection: Selection, since: int | None, begun: Callable[[int], None]
    ) -> AsyncGenerator[Shown, None]: ...

    async def put(
        self, key: str, found: KeyMatch, content: bytes, ttl: int | None, expect: int | Unset | None
    ) -> Put: ...

    async def delete(self, key: str, found: KeyMatch, expect: int | Unset | None) -> bool: ...


def selected(selection: Selection) -> Place:
    """The place of the rows that are asked for. Every command asks for the system first, then the store, then the space."""
    chosen = target(selection.system)
    _check_named(selection.system, selection)
    return place_of_space(chosen, named_space(selection.space) or _space_of_token(selection))


def selected_by_key(system: str, key: str, where: Where) -> tuple[Place, KeyMatch]:
    """The place of one row, and what the row is."""
    chosen = target(system)
    _check_named(system, where)
    return place_of_key(chosen, key, where.space)


def _space_of_token(selection: Selection) -> str | None:
    """The space that a token stands for, where the system's are customers who have one."""
    service = service_of(selection)
    if service is None or service.token is None:
        return None
    named: Callable[[str], str] | None = getattr(load_remote(selection.system), "space_of", None)
    return None if named is None else named(service.token)


def _check_named(system: str, where: Where) -> None:
    if service_of(where) is None:
        url_of(system, where.store, where.data)


@asynccontextmanager
async def reached(
    system: str, place: Place, where: Where, *, rehearse: Rehearsal | None = None
) -> AsyncIterator[Access]:
    """The way in that the options or the environment name, open until the end of the block. A store must be there, unless
    there is something to rehearse: then see `opened`."""
    service = service_of(where)
    if service is None:
        url = url_of(system, where.store, where.data)
        async with opened(url, existing=rehearse is None, rehearse=rehearse) as engine:
            yield StoreAccess(place, engine, public_url(url))
        return
    try:
        remote: Remote = await load_remote(system).connect(service.url, place.space, service.token)
        try:
            yield ServiceAccess(place, remote, public_url(service.url))
        finally:
            await remote.close()
    except EngineError as error:
        error.fields["service"] = public_url(service.url)
        raise


class StoreAccess:
    def __init__(self, place: Place, engine: Engine, where: str) -> None:
        self.where = where
        self._place = place
        self._engine = engine

    async def get(self, key: str) -> Shown | None:
        [row] = await self._engine.read(self._place.space, (key,))
        return None if row is None else shown(self._place.schema, self._place.space, row)

    def rows(
        self, query: Query, *, keys_only: bool = False, resolve: bool = False
    ) -> AsyncIterator[Shown]:
        return found(query, self._place, self._engine, keys_only=keys_only, resolve=resolve)

    async def count(self, selection: Selection) -> int:
        return await counted(selection, self._place, self._engine)

    async def watch(
        self, selection: Selection, since: int | None, begun: Callable[[int], None]
    ) -> AsyncGenerator[Shown, None]:
        schema, space = self._place.schema, self._place.space
        passes, within = filter_of(schema, selection.only), span_of(selection.prefix)
        newest = (await self._engine.scan(space, within, limit=1)).revision
        check_since(since, newest)  # before it is said that it has begun
        start = since if since is not None else newest
        begun(start)
        async with aclosing(self._engine.watch(space, within, since=start)) as changes:
            async for change in changes:
                if passes(change.key):
                    yield shown_change(schema, space, change)

    async def put(
        self, key: str, found: KeyMatch, content: bytes, ttl: int | None, expect: int | Unset | None
    ) -> Put:
        return await put_value(
            self._place, self._place.store(self._engine), found, key, content, ttl, expect
        )

    async def delete(self, key: str, found: KeyMatch, expect: int | Unset | None) -> bool:
        store = self._place.store(self._engine)
        await refuse_newer(store)
        bound = store.find(key)
        assert bound is not None, "the place was chosen by this key"
        return await store.delete(found.record, expect=expect, **bound.fields)


class ServiceAccess:
    """It knows its system's schema, and so shows a row as the store would; what the service does not tell is left out."""

    def __init__(self, place: Place, remote: Remote, where: str) -> None:
        self.where = where
        self._place = place
        self._remote = remote

    async def get(self, key: str) -> Shown | None:
        told = await self._remote.get(key)
        return None if told is None else shown_told(self._place.schema, self._place.space, told)

    async def rows(
        self, query: Query, *, keys_only: bool = False, resolve: bool = False
    ) -> AsyncIterator[Shown]:
        """No service tells derived rows, so that there is nothing to resolve."""
        schema, count = self._place.schema, 0
        passes, within = filter_of(schema, query.only), span(query)
        async for told in self._remote.rows(
            query.prefix, reverse=query.reverse, keys_only=keys_only
        ):
            if not (passes(told.key) and told.key in within):
                continue
            yield shown_told(schema, self._place.space, told, keys_only=keys_only)
            count += 1
            if count == query.limit:
                return

    async def count(self, selection: Selection) -> int:
        passes = filter_of(self._place.schema, selection.only)
        if selection.only is None:
            return await self._remote.count(selection.prefix)
        return sum(
            [
                passes(told.key)
                async for told in self._remote.rows(selection.prefix, reverse=False, keys_only=True)
            ]
        )

    async def watch(
        self, selection: Selection, since: int | None, begun: Callable[[int], None]
    ) -> AsyncGenerator[Shown, None]:
        schema = self._place.schema
        passes = filter_of(schema, selection.only)
        async with aclosing(self._remote.watch(selection.prefix, since, begun)) as changes:
            async for told in changes:
                if passes(told.key):
                    yield shown_told(schema, self._place.space, told, watched=True)

    async def put(
        self, key: str, found: KeyMatch, content: bytes, ttl: int | None, expect: int | Unset | None
    ) -> Put:
        check_writable(self._place, found, key)
        value = completed(found.record, found, None, content)
        found.record.parse(value)
        told = await self._remote.put(key, value, ttl=ttl, expect=expect)
        there = shown_told(self._place.schema, self._place.space, told)
        return Put(
            there.space, key, found.record.name, there.revision, there.expires, there.value, []
        )

    async def delete(self, key: str, found: KeyMatch, expect: int | Unset | None) -> bool:
        check_writable(self._place, found, key)
        return await self._remote.delete(key, expect=expect)
