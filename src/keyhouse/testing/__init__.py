"""What proves an engine, for whoever writes one: the conformance suite, and random scripts to compare two engines by.

Nothing here is needed to use Keyhouse; `pip install 'keyhouse[testing]'` brings what it needs.
"""
