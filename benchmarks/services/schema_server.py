"""`python -m benchmarks.services.schema_server FOLDER`: a schema of one's own, served on SQLite.

It prints its port and a token as JSON.
"""

from pathlib import Path
from typing import Final

import httpx
import msgspec
from prometheus_client import CollectorRegistry

from benchmarks.services.app_process import run, serve
from benchmarks.services.http_server import UNLIMITED
from keyhouse import Index, Record, Schema, Space, open_engine
from keyhouse.auth import JwtSettings, mint
from keyhouse.http import make_app
from keyhouse.service.schema_service.service import schema_service
from keyhouse.service.spec import ServiceContext, ServiceSpec

AUTHORS: Final = 20
LISTED: Final = 50
SPACE: Final = "main"


class Note(msgspec.Struct, kw_only=True):
    id: str
    author: str
    title: str
    content: str


NOTE = Record(Note, "note:{id}", Index("by-author:{author}:{id}", name="author"), name="note")
NOTES = Schema("notes", NOTE, space=Space("a team"))


def notes() -> list[Note]:
    """Return 50 notes of each author."""
    return [
        Note(id=f"n{n:05d}", author=f"a{n % AUTHORS}", title=f"Note {n}", content="To be read")
        for n in range(AUTHORS * LISTED)
    ]


async def main(folder: Path) -> None:
    engine = await open_engine(f"sqlite:{folder}/notes.db")
    service = schema_service(NOTES)
    context = ServiceContext(
        engine=engine, data=folder, metrics=CollectorRegistry(), settings=UNLIMITED
    )
    spec = service(context)
    assert isinstance(spec, ServiceSpec)
    app = make_app([spec], registry=CollectorRegistry())
    token = mint(JwtSettings(), folder, SPACE, system=NOTES.name)
    async with httpx.AsyncClient(
        transport=httpx.ASGITransport(app=app),
        base_url="http://localhost/notes/records",
        headers={"Authorization": f"Bearer {token}"},
    ) as client:
        for note in notes():
            reply = await client.put(f"/note/{note.id}", json=msgspec.to_builtins(note))
            reply.raise_for_status()
    await serve(app, token=token)


if __name__ == "__main__":
    run(main)
