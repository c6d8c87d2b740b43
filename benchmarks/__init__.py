"""Benchmarks: each figure is a ratio of two things measured in the same run, alternating. See docs/performance.md."""
