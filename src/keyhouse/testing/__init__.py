"""Tests for authors of engines: the conformance suite, and random scripts that compare two engines.

Not needed to use Keyhouse. The extra `testing` has its dependencies.
"""
