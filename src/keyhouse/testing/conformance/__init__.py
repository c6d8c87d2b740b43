"""The engine contract, `keyhouse.engine`, as tests that run on any engine.

Subclass `Conformance` in a test module, with a pytest fixture `opener` that returns an `Opener` of
a new, empty store.
"""

from keyhouse.testing.conformance.harness import Harness, Opener
from keyhouse.testing.conformance.suite import Conformance

__all__ = ["Conformance", "Harness", "Opener"]
