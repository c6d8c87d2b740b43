"""Verify: compare what a space derives from its records with what is stored, and repair it."""
