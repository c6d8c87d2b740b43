"""The conformance suite as one class."""

from keyhouse.testing.conformance.batch_ids import BatchIdTests
from keyhouse.testing.conformance.commits import CommitTests
from keyhouse.testing.conformance.concurrency import ConcurrencyTests
from keyhouse.testing.conformance.counters import CounterTests
from keyhouse.testing.conformance.expiry import ExpiryTests
from keyhouse.testing.conformance.forgetting import ForgetTests
from keyhouse.testing.conformance.hostile_values import HostileValueTests
from keyhouse.testing.conformance.lifetime import LifetimeTests
from keyhouse.testing.conformance.reads import ReadTests
from keyhouse.testing.conformance.scans import ScanTests
from keyhouse.testing.conformance.snapshots import SnapshotTests
from keyhouse.testing.conformance.spaces import SpaceTests
from keyhouse.testing.conformance.watches import WatchTests


class Conformance(
    BatchIdTests,
    CommitTests,
    ConcurrencyTests,
    CounterTests,
    ExpiryTests,
    ForgetTests,
    LifetimeTests,
    SnapshotTests,
    HostileValueTests,
    ReadTests,
    ScanTests,
    SpaceTests,
    WatchTests,
):
    """All tests. Tests of optional parts run if the engine's capabilities declare them."""
