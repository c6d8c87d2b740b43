"""One module for each version of the tables, in order. A version that has been released is not edited."""
