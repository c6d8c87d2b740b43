"""Every text that a request may have is bounded: by the head of a request, by its own type, or by a
rule that is named here. New members fail until they are decided.

Routes are those of all systems and of a served schema.
"""

import asyncio
import inspect
import re._parser as parser  # type: ignore[import-not-found]
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from msgspec import inspect as types
from prometheus_client import CollectorRegistry

from keyhouse import open_engine
from keyhouse.http.limits import HTTP_BODY_BYTES_MAX, HTTP_HEAD_BYTES_MAX
from keyhouse.http.signature import handler_signature
from keyhouse.operations.requests import SchemaRequest
from keyhouse.service.host import ServiceHost
from keyhouse.service.registry import has_service, load_service, system_names
from keyhouse.service.schema_service.service import schema_service
from keyhouse.service.spec import ServiceContext
from tests.service.schema_service.support.recipes import BOX

CHARS_MAX: Final = 100_000
"""A tenth of a body: a text that is normalized, folded or matched in a moment."""

DOCUMENT: Final = "a document, whose depth, size and keys the store limits"
KEY: Final = "part of a key, whose bytes are limited before it is normalized"
FORM: Final = "a form is converted to the bounded type of the API, or names a page"
CHECKED: Final = "an operation checks it, with an error that says how long it may be"

ELSEWHERE: Final[dict[tuple[str, str], str]] = {
    ("audiobooks", "Any"): DOCUMENT,
    ("history", "EventsBody.events[]"): DOCUMENT,
    ("history", "ViewingBody.ext{}"): DOCUMENT,
    ("recipes", "Any"): DOCUMENT,
    ("recipes", "EncodedBatch.operations[]"): DOCUMENT,
    ("streamkit", "BatchRequest.operations[].config{}"): DOCUMENT,
    ("streamkit", "value[].metadata"): DOCUMENT,
    ("streamkit", "value[].value"): DOCUMENT,
    ("streamkit", "value{}"): DOCUMENT,
    ("streamkit", "value{}.metadata"): DOCUMENT,
    ("streamkit", "value{}.value"): DOCUMENT,
    ("nats", "SchemaRequest.operations[]"): DOCUMENT,
    ("nats", "SchemaRequest.value"): DOCUMENT,
    ("recipes", "RecordAddresses.addresses[]{}"): KEY,
    ("streamkit", "BatchRequest.operations[].id"): KEY,
    ("streamkit", "value[].key"): KEY,
    ("streamkit", "value[].name"): KEY,
    ("nats", "SchemaRequest.addresses[]{}"): KEY,
    ("nats", "SchemaRequest.fields{}"): KEY,
    ("history", "ViewingBody.assetType"): CHECKED,
    ("history", "ViewingBody.updateTime"): CHECKED,
    ("playlist", "CreateBody.items[].categories[]"): CHECKED,
    ("playlist", "CreateBody.items[].thumbnail_url"): CHECKED,
    ("playlist", "CreateBody.items[].title"): CHECKED,
    ("playlist", "ReplaceBody.items[].categories[]"): CHECKED,
    ("playlist", "ReplaceBody.items[].thumbnail_url"): CHECKED,
    ("playlist", "ReplaceBody.items[].title"): CHECKED,
    ("playlist", "MarathonBody.interleave_pattern"): CHECKED,
    ("playlist", "SaveMarathonBody.interleave_pattern"): CHECKED,
    ("streamkit", "BatchRequest.operations[].ifMatch"): CHECKED,
    ("nats", "SchemaRequest.by"): CHECKED,
    ("nats", "SchemaRequest.counter"): CHECKED,
    ("nats", "SchemaRequest.cursor"): CHECKED,
    ("nats", "SchemaRequest.log"): CHECKED,
    ("nats", "SchemaRequest.record"): CHECKED,
    ("nats", "SchemaRequest.subject"): CHECKED,
    ("audiobooks", "form"): FORM,
    ("playlist", "form"): FORM,
}
"""Texts without a bound in their type: the rule that bounds them."""


def unbounded(info: Any, path: str = "", seen: frozenset[type] = frozenset()) -> Iterator[str]:
    """Yield the paths of texts, and of values of any type, that a type does not bound."""
    match info:
        case types.StrType(max_length=length, pattern=pattern):
            if length is None and pattern is not None:
                length = parser.parse(pattern).getwidth()[1]
            if length is None or length > CHARS_MAX:
                yield path
        case types.AnyType() | types.RawType():
            yield path
        case types.UnionType(types=parts) | types.TupleType(item_types=parts):
            for part in parts:
                yield from unbounded(part, path, seen)
        case types.CollectionType(item_type=part):
            yield from unbounded(part, f"{path}[]", seen)
        case types.DictType(key_type=key, value_type=value):
            yield from unbounded(key, f"{path}{{}}", seen)
            yield from unbounded(value, f"{path}{{}}", seen)
        case types.StructType(cls=cls, fields=fields) if cls not in seen:
            for field in fields:
                yield from unbounded(field.type, f"{path}.{field.encode_name}", seen | {cls})
        case types.Metadata(type=part):
            yield from unbounded(part, path, seen)
        case _:
            return


def _name(kind: Any) -> str:
    return getattr(kind, "__name__", "") if isinstance(kind, type) else "value"


async def _bodies(data: Path) -> dict[tuple[str, str], str]:
    """Return the unbounded texts of bodies, each with a route that takes it."""
    found: dict[tuple[str, str], str] = {}
    async with open_engine("memory:") as engine:
        for name in (*filter(has_service, system_names()), BOX.name):
            service = schema_service(BOX) if name == BOX.name else load_service(name)
            context = ServiceContext(
                engine=engine,
                data=data,
                metrics=CollectorRegistry(),
                settings={},
                host=ServiceHost(),
            )
            built = service(context)
            spec = await built if inspect.isawaitable(built) else built
            for route in spec.routes:
                signature = handler_signature(route)
                if signature.has_body and signature.body is not bytes:
                    what = "form" if signature.is_form else _name(signature.body)
                    for path in unbounded(types.type_info(signature.body)):
                        member = what if signature.is_form else f"{what}{path}"
                        found[name, member] = f"{route.method} {route.path}"
    for path in unbounded(types.type_info(SchemaRequest)):
        found["nats", f"SchemaRequest{path}"] = "requests of a served schema"
    return found


def test_every_text_of_a_body_is_bounded_by_its_type_or_by_a_named_rule(tmp_path: Path) -> None:
    found = asyncio.run(_bodies(tmp_path))
    assert {each: found[each] for each in found.keys() - ELSEWHERE.keys()} == {}, "bound these"
    assert ELSEWHERE.keys() - found.keys() == set(), "these are bounded now"


def test_paths_queries_and_headers_are_bounded_by_the_head_of_a_request() -> None:
    assert HTTP_HEAD_BYTES_MAX <= CHARS_MAX < HTTP_BODY_BYTES_MAX
