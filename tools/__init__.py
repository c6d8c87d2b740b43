"""Programs for developers of Keyhouse, which are not installed: `make docs` runs them."""
