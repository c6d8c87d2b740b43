"""Reads: records by key, in pages, by an index, their changes, and raw rows."""
