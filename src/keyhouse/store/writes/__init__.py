"""Writes: transactions, and the parts from which each of them makes its Batch."""
