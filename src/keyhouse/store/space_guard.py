"""Space guards: they reject writes of a space that is not of this code.

Theory of operation. A few rows of a space tell it, and a store reads them before its first write,
then before a write once in ten seconds (ADR 0044):

    row                      says                                              error
    version, migration job   newer code has migrated the space or is           NewerError
                             migrating it: this code would write the old shape
    mark (`erase_space`)     the space is being erased                         PreparingError
"""

from collections.abc import Mapping

from keyhouse.engine import Engine, Row
from keyhouse.errors import NewerError, PreparingError, UnreadableError
from keyhouse.schema import BoundSchema, Meta, migration_job
from keyhouse.store.jobs.erase_space import FORGET_KEY, has_mark

_INTERVAL_MS = 10_000

_LATER_META = Meta()
"""The rows about the space that a schema without them has by default once it has a migration."""


class SpaceGuard:
    """Rejects writes of one space by one schema. `has_mark`: the space can have the mark."""

    __slots__ = ("_checked_at", "_engine", "_keys", "_schema", "_space", "has_mark", "newer_keys")

    def __init__(self, engine: Engine, space: str, binding: BoundSchema) -> None:
        self._engine = engine
        self._space = space
        self._schema = binding.schema
        self.has_mark = has_mark(binding.schema)
        self.newer_keys = _newer_keys(binding, space)
        """The keys of the rows by which the space is known to be newer: its `version`, and the
        `job` of the migration after the last one that this code knows."""
        self._keys = ({FORGET_KEY: FORGET_KEY} if self.has_mark else {}) | self.newer_keys
        self._checked_at = -_INTERVAL_MS

    def is_due(self, now: int) -> bool:
        """Return whether the rows were not read yet, or not for a while."""
        return not 0 <= now - self._checked_at < _INTERVAL_MS

    def recheck(self) -> None:
        """Let the next write read the rows."""
        self._checked_at = -_INTERVAL_MS

    async def check(self) -> None:
        """Raise NewerError or PreparingError if the space must not be written."""
        now = self._engine.clock.now()
        rows = await self._read(self._keys)
        if rows.pop(FORGET_KEY, None) is not None:
            raise PreparingError(
                "The space is being erased: try again later.", space=self._space, retry_after=1
            )
        self._reject_newer(rows)
        self._checked_at = now

    async def check_newer(self) -> None:
        """Raise NewerError if newer code has migrated the space or is migrating it."""
        self._reject_newer(await self._read(self.newer_keys))

    async def _read(self, keys: Mapping[str, str]) -> dict[str, Row | None]:
        if not keys:
            return {}
        return dict(zip(keys, await self._engine.read(self._space, [*keys.values()]), strict=True))

    def _reject_newer(self, rows: Mapping[str, Row | None]) -> None:
        stored = rows.get("version")
        if rows.get("job") is None:
            if stored is None:
                return
            version = (self._schema.meta or _LATER_META).version
            try:
                if version.json.decode(stored.value, stored.key) <= self._schema.version:
                    return
            except UnreadableError:  # `verify` reports it, and its repair must be written
                return
        raise NewerError(
            "Newer code has migrated the space or is migrating it: use the newer program. If this"
            " is not the schema of the space, open its own file or space.",
            space=self._space,
            known=self._schema.version,
        )


def _newer_keys(binding: BoundSchema, space: str) -> dict[str, str]:
    """Return `newer_keys`. A schema without such rows is of version 0: they are where a later
    version of it has them by default, unless the keys are its own."""
    schema, job = binding.schema, migration_job(binding.schema.version + 1)
    if schema.meta is not None:
        return {
            "version": binding.record(schema.meta.version).template.build({}),
            "job": binding.record(schema.meta.job).template.build({"name": job}),
        }
    before = schema.text_before(space)
    keys = {
        "version": before + _LATER_META.version.template.build({}),
        "job": before + _LATER_META.job.template.build({"name": job}),
    }
    return {name: key for name, key in keys.items() if schema.find(key) is None}
