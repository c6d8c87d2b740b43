"""Benchmarks of services: plugin storage over NATS (cases 1, 2), Streamkit over HTTP (case 6)."""
