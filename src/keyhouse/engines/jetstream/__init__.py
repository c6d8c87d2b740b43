"""The NATS JetStream engine, through `nats-py`: rows in key-value buckets that any client can read.

Open it with `JetstreamEngine.open(url)`.
"""

from keyhouse.engines.jetstream.engine import JetstreamEngine

__all__ = ["JetstreamEngine"]
