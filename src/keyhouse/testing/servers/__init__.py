"""Real servers for tests, installed with pip. Each has a temporary folder and stops with the
process that started it."""
