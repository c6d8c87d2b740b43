"""The NATS face: endpoints in a queue group, joined to the micro protocol, with back-pressure and a drain at the end.

It knows no system and no store: an endpoint's handler is all it calls.
"""

from keyhouse.serve.nats.body import Body
from keyhouse.serve.nats.connection import connect
from keyhouse.serve.nats.endpoint import Endpoint, Publisher, Request
from keyhouse.serve.nats.error_reply import failure
from keyhouse.serve.nats.listener import NatsListener

__all__ = ["Body", "Endpoint", "NatsListener", "Publisher", "Request", "connect", "failure"]
