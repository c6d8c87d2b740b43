"""The server process: opens engines, runs the HTTP and NATS listeners, and shuts down in order.

It knows no system: it runs the `ServiceSpec` that each system returns.
"""
