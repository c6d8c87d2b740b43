"""One module per version of the tables. A released version is never edited."""
