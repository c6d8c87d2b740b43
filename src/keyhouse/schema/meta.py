"""What a store keeps about itself, in rows of the space it concerns: its version, its migrations, its jobs."""

from collections.abc import Awaitable, Callable
from typing import Any

import msgspec

from keyhouse.arguments import checked
from keyhouse.errors import DeclarationError
from keyhouse.keys.segments import Segment
from keyhouse.keys.template import Template
from keyhouse.schema.record import Record
from keyhouse.schema.times import SECONDS, TimeFormat


class MigrationDone(msgspec.Struct, kw_only=True):
    """A migration that was applied: when, how long it took, and what it did."""

    id: int
    applied_at: str
    description: str
    duration_ms: int
    counts: dict[str, int] = {}


class JobState(msgspec.Struct, kw_only=True):
    """How far a job has come. One runner works at a time: the `owner`, until `lease_until` (clock milliseconds)."""

    owner: str
    lease_until: int
    started_at: int
    cursor: str = ""
    done: int = 0
    changed: int = 0
    finished: bool = False


def migration_job(id: int) -> str:
    """The name of the job that a migration is."""
    return f"migrate-{id}"


class Meta:
    """Where these rows are. The defaults are the audiobook seed's own keys; `segments` serves templates of other shapes."""

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
    """One numbered step from the keyspace before it to the next. `step` is called for each record of `over`, some of them
    in one commit with the checkpoint, so each is changed once however often the run is killed.

    `step(tx, entry)` writes through the transaction: records with `put`, events of a log with `restore`. `over` may be an
    older declaration of a record, at the same template.
    """

    id: int
    description: str
    over: Record[Any]
    step: Callable[[Any, Any], Awaitable[None]]
