"""Tests for authors of engines: the conformance suite, and random scripts that compare two engines.
For authors of programs: several processes in simulated time, and a checker of histories.

Not needed to use Keyhouse. The extra `testing` has its dependencies.
"""
