"""Rows that a store keeps about itself in each space: its version, its migrations, its jobs."""

from collections.abc import Awaitable, Callable
from hashlib import blake2b
from typing import Any

import msgspec

from keyhouse.advice.arguments import checked
from keyhouse.errors import DeclarationError
from keyhouse.keys.segment import Segment
from keyhouse.keys.template import Template
from keyhouse.schema.declaration import Declaration
from keyhouse.schema.record import Record
from keyhouse.schema.times import SECONDS, TimeFormat


class MigrationDone(msgspec.Struct, kw_only=True):
    """A migration that was applied, with its time, duration and counts."""

    id: int
    applied_at: str
    description: str
    duration_ms: int
    counts: dict[str, int] = {}


class JobState(msgspec.Struct, kw_only=True):
    """The checkpoint of a job. Only the `owner` may run it until `lease_until` (clock
    milliseconds).
    """

    owner: str
    lease_until: int
    started_at: int
    cursor: str = ""
    done: int = 0
    changed: int = 0
    finished: bool = False


def migration_job(id: int) -> str:
    """Return the name of the job that runs a migration."""
    return f"migrate-{id}"


DELETION_JOBS = "delete-"
"""The names of deletion jobs begin with this."""


def deletion_job(record: str, key: str) -> str:
    """Return the name of the job that deletes what belongs to the record at a key.

    The key is hashed, since a job's name is part of a key itself; the job's `cursor` has it.
    """
    return f"{DELETION_JOBS}{record}-{blake2b(key.encode(), digest_size=16).hexdigest()}"


class Meta(Declaration):
    """The keys of a space's version, migrations and jobs.

    `segments` are field types for templates of other shapes.
    """

    @checked(DeclarationError)
    def __init__(
        self,
        *,
        version: str = "meta:version",
        done: str = "mig:{id:06d}",
        job: str = "meta:job:{name}",
        times: TimeFormat = SECONDS,
        **segments: Segment,
    ) -> None:
        def template(text: str) -> Template:
            used: Any = {name: type_ for name, type_ in segments.items() if "{" + name in text}
            return Template(text, **used)

        self.times = times
        self.version = Record(
            int, template(version), name="version", doc="The version of the keyspace."
        )
        self.done = Record(MigrationDone, template(done), name="migration")
        self.job = Record(JobState, template(job), name="job")

    @property
    def records(self) -> tuple[Record[Any], ...]:
        return (self.version, self.done, self.job)


class Migration(msgspec.Struct, frozen=True):
    """One numbered step from one version of the keyspace to the next.

    `step(tx, entry)` is called for each record of `over` and writes through the transaction:
    records with `put`, events of a log with `restore`. The checkpoint is written in the same
    commit, so each record is changed once, however often the run is killed.

    `over` may be an older declaration of a record at the same template, with its older type,
    derived rows and options. It decodes the stored rows; a put of the newer record at the same key
    removes the rows that the older one derived, and keeps its time of creation, its expiry and its
    unknown members.
    """

    id: int
    description: str
    over: Record[Any]
    step: Callable[[Any, Any], Awaitable[None]]
