"""The NATS face: endpoints in a queue group, joined to the micro protocol, with back-pressure and a drain at the end.

It knows no system and no store: an endpoint's handler is all it calls.
"""

from keyhouse.serve.nats.body import Body
from keyhouse.serve.nats.connection import connect
from keyhouse.serve.nats.endpoint import Courier, Endpoint, Request
from keyhouse.serve.nats.face import NatsFace
from keyhouse.serve.nats.failure import failure

__all__ = ["Body", "Courier", "Endpoint", "NatsFace", "Request", "connect", "failure"]
