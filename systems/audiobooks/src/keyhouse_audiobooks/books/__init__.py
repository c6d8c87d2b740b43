"""Books, their catalog, covers and segments, and the search over them."""
