"""The NATS JetStream engine: rows as plain JSON in key-value buckets that any NATS client reads. Through `nats-py`.

`JetstreamEngine.open(url)` is all there is to call.
"""

from keyhouse.engines.jetstream.engine import JetstreamEngine

__all__ = ["JetstreamEngine"]
