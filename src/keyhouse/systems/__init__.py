"""The five systems that ship with Keyhouse, one folder each. A schema reads like
the document it comes from."""
