"""Tests for authors of engines: the conformance suite, and random scripts that compare two engines.

Not needed to use Keyhouse. `pip install 'keyhouse[testing]'` installs its dependencies.
"""
