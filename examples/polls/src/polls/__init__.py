"""Polls: viewers of a channel vote, each once, and a page shows the result."""

from keyhouse.service.system import System

SYSTEM = System(
    "polls",
    title="Polls of a channel",
    doc=__doc__,
    schemas="polls.schema:SCHEMAS",
    service="polls.service:SERVICE",
)
