"""The OpenAPI document of a served schema is its author's, and every generator reads it."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from msgspec import Struct

from keyhouse import Counter, Record, Schema, Space
from tests.service.schema_service.support.recipes import BOX
from tests.service.schema_service.support.served import serving
from tests.support.engine_openers import memory


class Place(Struct):
    id: str
    at: tuple[float, float]
    pairs: list[tuple[str, int]] = []


PLACE = Record(Place, "place:{id}")
VISITS = Counter("visits:{id}:{day:date}")
PLACES = Schema(
    "places",
    PLACE,
    VISITS,
    space=Space("a person"),
    doc="Places.",
)
SCHEMAS = {"places": PLACES, "recipes": BOX}


@pytest.fixture(params=SCHEMAS)
def document(request: Any, tmp_path: Path) -> Any:
    with serving(memory(tmp_path), tmp_path, SCHEMAS[request.param]) as served:
        return served.http().get("/openapi.json").json()


def operations(document: Any) -> Iterator[tuple[str, Any]]:
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            yield f"{method} {path}", operation


def test_every_parameter_has_a_description(document: Any) -> None:
    """None had one, and no page said that `FIELD.to` is exclusive."""
    bare = [
        f"{name}: {parameter['name']}"
        for name, operation in operations(document)
        for parameter in operation.get("parameters", ())
        if not parameter.get("description")
    ]
    assert not bare
    texts = {
        parameter["name"]: parameter["description"]
        for _, operation in operations(document)
        for parameter in operation.get("parameters", ())
    }
    assert all("exclusive" in text for name, text in texts.items() if name.endswith(".to"))


def test_the_document_is_labelled_as_the_schema(document: Any) -> None:
    """A schema of one's own was "MIT" and had the version of Keyhouse."""
    info = document["info"]
    assert info["title"] in ("Places", "Recipes") and info["version"] == "0"
    assert "license" not in info and info["description"]


def test_the_example_of_a_batch_is_of_the_schema(document: Any, tmp_path: Path) -> None:
    """It named a counter `views` and an id `pie`, whatever was served."""
    schema = SCHEMAS[document["info"]["title"].lower()]
    body = document["paths"]["/batch"]["post"]["requestBody"]["content"]["application/json"]
    with serving(memory(tmp_path), tmp_path, schema) as served:
        reply = served.client().post("/batch", json=body["example"])
    assert len(body["example"]["operations"]) == 2
    assert reply.status_code == 200, reply.text
