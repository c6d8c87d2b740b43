"""Replies have types: OpenAPI names their members, and the JSON is that of the stored records."""

import asyncio
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec.structs import asdict
from prometheus_client import CollectorRegistry

from keyhouse import Record
from keyhouse.engines.memory import MemoryEngine
from keyhouse.http import make_app
from keyhouse.service.spec import ServiceContext
from keyhouse_audiobooks import SYSTEM
from keyhouse_audiobooks.books import messages
from keyhouse_audiobooks.records import Author, Series, Work
from keyhouse_audiobooks.schema import AUTHOR, SERIES, WORK
from tests.http.support.asgi_client import ask

ONE, TWO = "01J00000000000000000000001", "01J00000000000000000000002"
AT = "2026-01-02T03:04:05.678Z"


@pytest.mark.parametrize(
    ("record", "value", "shown"),
    [
        (AUTHOR, Author(id=ONE, name="Ann", created_at=AT), messages.ShownAuthor),
        (SERIES, Series(id=ONE, name="Sea", author_id=TWO), messages.ShownSeries),
        (WORK, Work(id=ONE, title="Öd", alt_titles=["Ode"]), messages.ShownWork),
    ],
)
def test_a_reply_is_the_record_and_its_count_byte_for_byte(
    record: Record[Any], value: msgspec.Struct, shown: type[Any]
) -> None:
    """They were dictionaries, and so were their types in OpenAPI and in generated clients."""
    reply = shown(**asdict(value), book_count=2)
    plain = {**record.shown(value), "book_count": 2}
    assert msgspec.json.encode(reply) == msgspec.json.encode(plain)


def test_openapi_names_the_members_of_a_reply(tmp_path: Path) -> None:
    context = ServiceContext(
        engine=MemoryEngine(), data=tmp_path, metrics=CollectorRegistry(), settings={}
    )
    app = make_app([asyncio.run(SYSTEM.service(context))])
    document = ask(app, "GET", "/audiobooks/openapi.json").json()
    paths = document["paths"]
    untyped = [name for name in document["components"]["schemas"] if "dict_str_Any" in name]
    assert untyped == []
    for path, name in {
        "/authors": "Data_Items_ShownAuthor",
        "/authors/{id}": "Data_ShownAuthor",
        "/series/{id}": "Data_ShownSeries",
        "/works": "Data_Items_ShownWork",
        "/works/count": "Data_Count",
        "/books/count": "Data_Count",
        "/operations": "Data_Items_ShownOperation",
        "/operations/{id}": "Data_ShownOperation",
        "/operations/{id}/logs": "Data_Items_OperationLine",
        "/auth/me": "Data_UserProfile",
        "/books": "Data_Items_ShownBook",
        "/books/{id}": "Data_ShownBook",
        "/books/{id}/position": "Data_PlaybackPosition",
        "/books/{id}/segments": "Data_Items_ShownSegment",
        "/me/continue": "Data_ResumeList",
        "/playlists/{id}": "Data_ShownPlaylist",
    }.items():
        reply = paths[f"/api/v1{path}"]["get"]["responses"]["200"]
        [content] = reply["content"].values()
        assert content["schema"] == {"$ref": f"#/components/schemas/{name}"}
    merged = paths["/api/v1/books/{id}/merge"]["post"]["responses"]["200"]
    assert merged["content"]["application/json"]["schema"]["oneOf"] == [
        {"$ref": "#/components/schemas/Data_MergePreview"},
        {"$ref": "#/components/schemas/Data_ShownOperation"},
    ]
