"""The suite as one class, so that an engine's test module has one line to write."""

from keyhouse.testing.conformance.batch_ids import BatchIds
from keyhouse.testing.conformance.commits import Commits
from keyhouse.testing.conformance.concurrency import Concurrency
from keyhouse.testing.conformance.counters import Counters
from keyhouse.testing.conformance.expiry import Expiry
from keyhouse.testing.conformance.lifetime import Lifetime
from keyhouse.testing.conformance.poison import Poison
from keyhouse.testing.conformance.reads import Reads
from keyhouse.testing.conformance.scans import Scans
from keyhouse.testing.conformance.snapshots import Moments
from keyhouse.testing.conformance.spaces import Spaces
from keyhouse.testing.conformance.watches import Watches


class Conformance(
    BatchIds,
    Commits,
    Concurrency,
    Counters,
    Expiry,
    Lifetime,
    Moments,
    Poison,
    Reads,
    Scans,
    Spaces,
    Watches,
):
    """All of it. What a test needs beyond the contract, the engine declares in its capabilities."""
