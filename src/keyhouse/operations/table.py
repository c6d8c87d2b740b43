"""The table: every verb of a served schema, by name."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from keyhouse.errors import (
    AccessError,
    ContentionError,
    CounterError,
    NotFoundError,
    PreparingError,
    UnknownOutcomeError,
    UsageError,
)
from keyhouse.operations.batch import (
    EncodedBatch,
    SchemaBatch,
    SchemaBatchReply,
    example_batch,
    run_batch,
)
from keyhouse.operations.catalog import KINDS, Kind
from keyhouse.operations.record_verbs import RECORD_VERBS, WRITE_PROBLEMS
from keyhouse.operations.replies import ClearedRecords
from keyhouse.operations.verb import Verb
from keyhouse.operations.writes import clear_space

__all__ = [
    "BATCH",
    "CLEAR",
    "READS",
    "SPACE_VERBS",
    "VERBS",
    "WATCH",
    "kinds_of",
    "requested_kind",
    "requested_verb",
    "verb_of",
]

BATCH: Final = Verb(
    name="batch",
    access="write",
    http="POST /batch",
    docs="Apply several operations: all of them, or none.",
    body=EncodedBatch,
    described_as=SchemaBatch,
    example=example_batch,
    is_idempotent=True,
    reply=SchemaBatchReply,
    problems=(NotFoundError, AccessError, CounterError, *WRITE_PROBLEMS),
    run=run_batch,
)
CLEAR: Final = Verb(
    name="clear",
    access="write",
    http="POST /clear",
    docs="Delete the records of the space, some at a time: repeat it while there are `more`.",
    reply=ClearedRecords,
    problems=(AccessError, ContentionError, UnknownOutcomeError, PreparingError),
    run=clear_space,
)
WATCH: Final = Verb(
    name="watch",
    access="read",
    http="GET /watch",
    kinds=("record", "counter", "log"),
    docs="""Stream the changes of a record as Server-Sent Events.

    An event is `put` or `gone`, and its data an item; or `unreadable`, for a row that does not
    decode, with its `key`, `revision`, `type` and `detail`. The last event of a commit has its
    revision as id. After `expired`, list again and watch since the revision of that list.
    """,
    problems=(AccessError, PreparingError),
    run=None,
)
"""Each protocol streams changes in its own way: alone of all verbs, it has no function here."""

SPACE_VERBS: Final = (BATCH, CLEAR, WATCH)
"""Verbs with one route for the whole space."""

VERBS: Final = (*RECORD_VERBS, *SPACE_VERBS)
READS: Final = frozenset([verb.name for verb in VERBS if verb.access == "read"])

_BY_NAME: Final[dict[tuple[str, Kind | None], Verb]] = {
    (verb.name, kind): verb for verb in VERBS for kind in (verb.kinds or (None,))
}


def verb_of(name: str, kind: Kind | None = None) -> Verb | None:
    """Return the verb of a name for what it works on (None: the whole space)."""
    return _BY_NAME.get((name, kind))


def kinds_of(name: str) -> Sequence[Kind]:
    """Return what the verbs of a name work on."""
    return [kind for verb in VERBS if verb.name == name for kind in verb.kinds]


def requested_kind(body: Mapping[str, Any]) -> Kind | None:
    """Return what a request works on, by the member that names it."""
    for kind in KINDS:
        if kind in body:
            return kind
    return None


def requested_verb(operation: str, body: Mapping[str, Any]) -> Verb:
    """Return the verb of a request. Raises UsageError if there is none."""
    verb = verb_of(operation, requested_kind(body))
    if verb is None:
        raise UsageError("The service has no such operation.", operation=operation)
    return verb
