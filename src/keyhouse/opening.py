"""Opens a store on an engine, or on the engine that a URL names."""

import sys
from collections.abc import Iterator
from pathlib import Path
from shlex import quote

from keyhouse.advice.arguments import checked
from keyhouse.clock import Clock, IdSource
from keyhouse.engine import Engine
from keyhouse.engines.opening import Opening
from keyhouse.engines.registry import open_engine, public_url
from keyhouse.errors import UnbuiltIndexError, UsageError
from keyhouse.keyring import KeyRing
from keyhouse.limits import OPEN_WAIT_SECONDS
from keyhouse.schema import Schema
from keyhouse.store import Store, open_migrated

__all__ = ["open_store"]


@checked(UsageError)
def open_store(
    schema: Schema,
    engine: str | Engine,
    space: str,
    *,
    clock: Clock | None = None,
    ids: IdSource | None = None,
    key_ring: KeyRing | None = None,
    reindex: bool = False,
    wait_seconds: float = OPEN_WAIT_SECONDS,
    **fixed: str,
) -> Opening[Store]:
    """Open a store at the version of its schema, migrating it if it is older.

    `engine` is an open engine, or a URL as `open_engine` takes it, with its `clock`. Use the result
    with `async with`, or await it and call `Store.close` at the end: both close an engine that was
    opened by its URL, and leave any other one open.

    Finishes deletions that were interrupted. Raises NewerError if the store is newer, and
    UnbuiltIndexError if a derived row is new or changed and the space has records that are not in
    it: `reindex` builds it, in commits that can be resumed. Of several processes that open a space
    at once, one prepares it and the others wait; one that has waited `wait_seconds` raises
    LeaseError.
    """
    if clock is not None and not isinstance(engine, str):
        raise UsageError("An open engine has its clock: give the clock to `open_engine`.")

    async def opened() -> Store:
        owned = await open_engine(engine, clock=clock) if isinstance(engine, str) else None
        try:
            return await open_migrated(
                schema,
                engine if owned is None else owned,  # type: ignore[arg-type]  # an Engine
                space,
                ids=ids,
                key_ring=key_ring,
                owns_engine=owned is not None,
                reindex=reindex,
                wait_seconds=wait_seconds,
                **fixed,
            )
        except BaseException as error:
            if isinstance(error, UnbuiltIndexError):
                error.fields["command"] = _reindex_command(schema, engine, space)
            if owned is not None:
                await owned.close()
            raise

    return Opening(opened())


def _reindex_command(schema: Schema, engine: str | Engine, space: str) -> str:
    """Return the command that builds the derived rows of this store, with the variable that holds
    the schema. A URL with a password is not shown."""
    named = next(_variables(schema), "MODULE:SCHEMA")
    url = engine if isinstance(engine, str) and public_url(engine) == engine else "URL"
    words = (named, "--store", url, "--space", space, "--reindex")
    return f"keyhouse migrate {' '.join(map(quote, words))}"


def _variables(schema: Schema) -> Iterator[str]:
    """Yield the variables of loaded modules that hold a schema, each as `module:NAME`; last the
    program that was started, as a module of its file's name."""
    for name, module in sorted(sys.modules.items(), key=lambda each: each[0] == "__main__"):
        file = getattr(module, "__file__", None)
        for variable, value in list(vars(module).items()):
            if value is schema and (name != "__main__" or file):
                yield f"{Path(file).stem if name == '__main__' and file else name}:{variable}"
