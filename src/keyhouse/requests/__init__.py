"""Checks of the JSON that clients send, before it is parsed: the same over HTTP and NATS."""
