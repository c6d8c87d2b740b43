"""Every sentence of `keyhouse.engine`, as tests that any engine can be put to.

Subclass `Conformance` in a test module, with a pytest fixture `opener` that gives an `Opener` of a new, empty store.
"""

from keyhouse.testing.conformance.harness import Harness, Opener
from keyhouse.testing.conformance.suite import Conformance

__all__ = ["Conformance", "Harness", "Opener"]
