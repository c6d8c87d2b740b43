"""Real servers for tests, installed with pip: each in a temporary folder, and ended with the process that began it."""
