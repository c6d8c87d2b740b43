"""Work on one event loop: turns of tenants, tasks that start at once, and timings."""
