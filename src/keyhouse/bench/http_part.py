"""What is asked in row 6: one note of a customer, by its id, of Streamkit itself on SQLite."""

from pathlib import Path

from prometheus_client import CollectorRegistry

from keyhouse import Store, open_engine
from keyhouse.service import ServiceContext, ServiceSpec
from keyhouse.systems.streamkit import NOTE, SCHEMAS, Note
from keyhouse.systems.streamkit.service import part as streamkit

CUSTOMER = "12345"
NOTE_ID = "n1"
UNLIMITED = {"rate_per_second": 1e9, "rate_burst": 1_000_000_000}
"""A customer of the bench asks more often than one is allowed to."""


async def part(folder: Path) -> ServiceSpec:
    engine = await open_engine(f"sqlite:{folder}/notes.db")
    note = Note(id=NOTE_ID, title="A note", content="To be read", extra={"panel": {}})
    await Store(SCHEMAS[0], engine, CUSTOMER).put(NOTE, note)
    return streamkit(
        ServiceContext(engine=engine, data=folder, metrics=CollectorRegistry(), settings=UNLIMITED)
    )
