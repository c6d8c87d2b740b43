"""What is asked in row 6: one note of a customer, by its id, with a token."""

from pathlib import Path
from typing import Any

from keyhouse import Store, open_engine
from keyhouse.errors import NotFoundError
from keyhouse.serve import Part
from keyhouse.serve.auth import Caller, JwtSettings, jwt_auth
from keyhouse.serve.http import Reply, Route, etag
from keyhouse.systems.streamkit import CONFIGS, NOTE, SCHEMAS, Note

CUSTOMER = "12345"
NOTE_ID = "n1"


async def part(folder: Path) -> Part:
    engine = await open_engine(f"sqlite:{folder}/notes.db")

    stores: dict[str, Store] = {}

    async def get(caller: Caller, type: str, id: str) -> Reply[Any]:
        store = stores.get(caller.tenant) or stores.setdefault(caller.tenant, Store(SCHEMAS[0], engine, caller.tenant))
        entry = await store.entry(CONFIGS[type], id=id)
        if entry is None:
            raise NotFoundError("There is no such config.")
        return Reply(entry.record, etag=etag(entry.revision))

    await Store(SCHEMAS[0], engine, CUSTOMER).put(NOTE, Note(id=NOTE_ID, title="A note", content="To be read"))
    return Part(
        name="streamkit",
        auth=jwt_auth(JwtSettings(), folder),
        routes=[Route(method="GET", path="/configs/{type}/{id}", handler=get, scope="read")],
    )
