"""Benchmarks: each result is a ratio of two workloads of the same run. See docs/performance.md."""
