"""The OpenAPI document describes request bodies as the service reads them: one that fits is
accepted, one that does not is a 422."""

import json
from collections.abc import Iterator
from datetime import date
from enum import Enum
from typing import Annotated, Any, Literal, NamedTuple, TypedDict

import httpx
import hypothesis
import msgspec
import pytest
import schemathesis
from hypothesis import strategies as st
from jsonschema_rs import validator_for
from msgspec import Meta
from schemathesis.core.errors import InvalidSchema

from keyhouse import Record, Schema, Space
from keyhouse.keyring import KeyRing
from tests.service.schema_service.support.served import Served, serving
from tests.sizes import size
from tests.support.engine_openers import sqlite


class Circle(msgspec.Struct, tag="circle"):
    radius: Annotated[float, Meta(gt=0)]


class Square(msgspec.Struct, tag="square"):
    side: Annotated[int, Meta(ge=1, le=100)]
    label: str | None = None


class Colour(Enum):
    RED = "red"
    BLUE = "blue"


class Size(TypedDict, total=False):
    width: int


class Place(NamedTuple):
    x: int
    y: int = 0


class Layer(msgspec.Struct, rename="camel"):
    layer_name: Annotated[str, Meta(min_length=1, max_length=8, pattern="^[a-z]*$")]
    shapes: list[Circle | Square] = []
    below: "Layer | None" = None


class Drawing(msgspec.Struct, kw_only=True):
    id: Annotated[str, Meta(pattern="^[a-z]{1,8}$")]
    layers: Annotated[list[Layer], Meta(max_length=4)]
    by_name: dict[str, Circle] = {}
    by_number: dict[int, Layer | None] = {}
    by_colour: dict[Colour, int] = {}
    only: Circle | None = None
    any_shape: Circle | Square | None = None
    mixed: int | str | list[bool] | Square = 0
    kinds: set[Literal["a", "b"]] = set()
    pair: tuple[int, Layer] | None = None
    place: Place = Place(0)
    size: Size = {}
    data: bytes = b""
    day: date | None = None
    free: dict[str, Any] = {}
    secret: int = 0


DRAWING = Record(Drawing, "drawing:{id}", name="drawing", private=("secret",))
KEPT = Record(Drawing, "kept:{id}", name="kept", unknown="keep", sealed=("only",))
TOP = Record(Drawing, "top:{id}", name="top", unknown="free")
SHAPE = Record[Any](Circle | Square, "shape:{id}", name="shape")  # type: ignore[arg-type]  # a choice
SHAPES = Record(list[Square], "shapes:{id}", name="shapes")
STUDIO = Schema("studio", DRAWING, KEPT, TOP, SHAPE, SHAPES, space=Space("a studio"))

LAYER = {"layerName": "sky"}
SMALL = {"id": "a", "layers": [LAYER]}
OPERATIONS = [
    (method, f"/records/{name}{address}", name)
    for name in ("drawing", "kept", "top", "shape", "shapes")
    for method, address in (("post", ""), ("put", "/{id}"), ("patch", "/{id}"))
]


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder = tmp_path_factory.mktemp("studio")
    ring = folder / "ring.json"
    KeyRing.new().save(ring)
    settings = {"rate_per_second": 1e6, "rate_burst": 1e6, "key_ring": str(ring)}
    with serving(sqlite(folder), folder, STUDIO, **settings) as running:
        yield running


@pytest.fixture
def http(served: Served) -> Iterator[httpx.Client]:
    with served.client() as client:
        yield client


@pytest.fixture(scope="module")
def document(served: Served) -> Any:
    return httpx.get(served.url + "/openapi.json", timeout=30).json()


def body_validator(document: Any, path: str, method: str) -> Any:
    """Return the validator of an operation's bodies."""
    [content, *_] = document["paths"][path][method]["requestBody"]["content"].values()
    whole = {**content["schema"], "components": document["components"]}
    return validator_for(whole, validate_formats=True)


def without_whole_floats(body: Any) -> Any:
    """Return a body with `1` for each `1.0`, which is an integer in JSON Schema and none here."""
    if isinstance(body, float) and body.is_integer():
        return int(body)
    if isinstance(body, list):
        return [without_whole_floats(part) for part in body]
    if isinstance(body, dict):
        return {name: without_whole_floats(part) for name, part in body.items()}
    return body


@st.composite
def cases(draw: st.DrawFn, operation: Any) -> Any:
    """Draw a request that fits the document, or one that does not."""
    mode = draw(st.sampled_from(schemathesis.GenerationMode))
    try:
        return draw(operation.as_strategy(generation_mode=mode))
    except InvalidSchema:  # a mutation that the generator does not finish
        hypothesis.reject()


@pytest.mark.long
@pytest.mark.soak
@pytest.mark.parametrize(("method", "path", "name"), OPERATIONS)
def test_a_body_is_accepted_if_and_only_if_it_fits_the_document(
    http: httpx.Client, document: Any, method: str, path: str, name: str
) -> None:
    operation: Any = schemathesis.openapi.from_dict(document)[path][method.upper()]
    validator = body_validator(document, path, method)
    outcomes = set[bool]()

    @hypothesis.given(cases(operation))
    @hypothesis.settings(
        max_examples=size(5, 25, 2_000),
        deadline=None,
        database=None,
        suppress_health_check=list(hypothesis.HealthCheck),
        phases=[hypothesis.Phase.generate],
    )
    def check(case: Any) -> None:
        hypothesis.assume(not isinstance(case.body, (bytes, schemathesis.core.NotSet)))
        check_body(without_whole_floats(case.body))

    def check_body(body: Any) -> None:
        http.delete(f"/records/{name}/a")
        at = path.replace("{id}", "a")
        query = {"id": "a"} if method == "post" and name.startswith("shape") else {}
        if isinstance(body, dict) and "id" in body and validator.is_valid(body):
            body = {**body, "id": "a"}
        if method == "patch":
            first: Any = {"drawing": SMALL, "kept": SMALL, "top": SMALL, "shapes": []}.get(
                name, {"type": "circle", "radius": 1}
            )
            http.put(f"/records/{name}/a", json=first).raise_for_status()
        headers = {"Content-Type": "application/json"}  # httpx sends no body for a null
        answer = http.request(method, at, content=json.dumps(body), params=query, headers=headers)
        fits = validator.is_valid(body)
        outcomes.add(fits)
        if fits and method != "patch":  # whether a patch is accepted depends on what it changes
            assert answer.status_code in (200, 201), (body, answer.text)
        if not fits:
            assert answer.status_code == 422, (body, answer.text)

    check()
    assert True in outcomes, "no generated body fits the document, so nothing was accepted"


def component(document: Any, name: str) -> Any:
    return document["components"]["schemas"][name]


def test_nested_objects_are_described_and_closed(document: Any) -> None:
    """They were open, and their members were described as those of any program."""
    new = component(document, "NewDrawing")
    assert new["required"] == ["id", "layers"] and new["additionalProperties"] is False
    assert new["properties"]["layers"]["maxItems"] == 4
    layer = component(document, "Drawing.Layer")
    assert layer["required"] == ["layerName"] and layer["additionalProperties"] is False
    assert layer["properties"]["layerName"]["pattern"] == "^[a-z]*$"
    shapes = layer["properties"]["shapes"]["items"]
    assert shapes["discriminator"]["propertyName"] == "type"
    assert [each["required"] for each in shapes["anyOf"]] == [["type"], ["type"]]
    assert component(document, "Drawing.Circle")["required"] == ["radius"]
    assert component(document, "PutDrawing")["required"] == ["layers"]


def test_additional_properties_are_described_where_they_are_kept(document: Any) -> None:
    for name in ("NewKept", "Kept.Layer", "NewTop"):
        assert "additionalProperties" not in component(document, name), name
    for name in ("Top.Layer", "Kept.only.Circle", "Drawing.Size"):
        assert component(document, name)["additionalProperties"] is False, name


def test_a_merge_patch_has_all_members_optional(document: Any) -> None:
    patch = component(document, "DrawingPatch")
    assert "required" not in patch and patch["additionalProperties"] == {"type": "null"}
    assert patch["properties"]["id"] == component(document, "NewDrawing")["properties"]["id"]
    assert {"type": "null"} in patch["properties"]["secret"]["anyOf"]


@pytest.mark.parametrize(
    ("name", "value", "member"),
    [
        ("shapes", [{"side": 1, "colour": "red"}], "[0].colour"),
        ("shape", {"type": "circle", "radius": 1, "colour": "red"}, "colour"),
    ],
)
def test_a_record_that_is_not_a_struct_rejects_unknown_members(
    http: httpx.Client, name: str, value: Any, member: str
) -> None:
    """They were dropped without a word."""
    answer = http.put(f"/records/{name}/b", json=value)
    assert answer.status_code == 422 and answer.json()["fields"]["member"] == member


def test_a_map_with_numbers_for_names_is_written_and_patched(http: httpx.Client) -> None:
    """The value was rejected: a member's name must be text."""
    value = {"layers": [LAYER], "by_number": {"1": LAYER, "2": None}}
    put = http.put("/records/drawing/c", json=value)
    assert put.status_code == 201, put.text
    patch = {"by_number": {"1": {"layerName": "sea"}, "2": None, "3": LAYER}}
    patched = http.patch("/records/drawing/c", json=patch).json()["value"]["by_number"]
    assert {name: each["layerName"] for name, each in patched.items()} == {"1": "sea", "3": "sky"}
