"""The NATS face: endpoints in a queue group, joined to the micro protocol, with back-pressure and a drain at the end.

It knows no system and no store: an endpoint's handler is all it calls.
"""

from keyhouse.nats.body import Body
from keyhouse.nats.connection import connect
from keyhouse.nats.endpoint import Endpoint, Publisher, Request
from keyhouse.nats.error_reply import failure
from keyhouse.nats.listener import NatsListener

__all__ = ["Body", "Endpoint", "NatsListener", "Publisher", "Request", "connect", "failure"]
