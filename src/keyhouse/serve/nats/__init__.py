"""The NATS face: endpoints in a queue group, joined to the micro protocol, with back-pressure and a drain at the end.

It knows no system and no store: an endpoint's handler is all it calls.
"""

from keyhouse.serve.nats.endpoint import Endpoint

__all__ = ["Endpoint"]
