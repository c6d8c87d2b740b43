"""Benchmarks of services: plugin storage over NATS (cases 1, 2) and Streamkit over HTTP (case 6)."""
