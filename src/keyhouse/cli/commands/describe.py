"""`keyhouse describe`: print a keyspace as a document, as JSON Schema, or as a diagram."""

from collections.abc import Iterable, Iterator, Sequence
from enum import StrEnum
from typing import Annotated, Any

import msgspec
import typer

from keyhouse.cli.options import Json, SystemName, examples
from keyhouse.cli.output import show_json, show_markdown, visible
from keyhouse.cli.target import load_system
from keyhouse.layout import DynamodbLayout, JetstreamLayout, SqlLayout
from keyhouse.limits import KEY_BYTES_MAX, SPACE_BYTES_MAX, VALUE_BYTES_MAX
from keyhouse.schema import Record, description
from keyhouse.schema.description import (
    FieldText,
    RecordText,
    RowText,
    SchemaText,
    kind_of,
    prose,
)
from keyhouse.service.system import System


class Format(StrEnum):
    MARKDOWN = "markdown"
    JSON = "json"
    JSON_SCHEMA = "json-schema"
    MERMAID = "mermaid"
    DOT = "dot"


@examples(
    "keyhouse describe audiobooks",
    "keyhouse describe audiobooks --format json-schema > audiobooks.schema.json",
    "keyhouse describe history --format dot | dot -Tsvg > history.svg",
)
def describe(
    system: SystemName,
    form: Annotated[
        Format,
        typer.Option(
            "--format",
            metavar="FORMAT",
            help="`markdown`; `json` (everything), `json-schema` (the values), `mermaid` or `dot`"
            " (a diagram).",
        ),
    ] = Format.MARKDOWN,
    json: Json = False,
) -> None:
    """Print a keyspace as a document, as JSON or as a diagram.

    From the code: keys, values, derived rows, expiry and migrations; and the names of tables,
    buckets and attributes in each engine.
    """
    loaded = load_system(system)
    doc = description.prose(loaded.doc).partition("\n")[0]
    schemas = [description.describe(schema) for schema in loaded.schemas]
    match Format.JSON if json and form is Format.MARKDOWN else form:
        case Format.JSON:
            names = {"name": loaded.name, "title": loaded.title, "doc": doc}
            show_json({**names, "schemas": schemas, "layouts": layout_names(loaded)})
        case Format.JSON_SCHEMA:
            show_json(json_schema(loaded))
        case Format.MERMAID:
            print(visible(mermaid(schemas)), end="")
        case Format.DOT:
            print(visible(dot(loaded.name, schemas)), end="")
        case _:
            show_markdown(document(loaded.title, doc, schemas) + layout_section(loaded))


# Markdown, in the order and the compact form in which people write such documents

_OBVIOUS = ("text", "a ULID")
"""The meaning of a field without a type, or of the type `ulid`."""

_READING = (
    "`{name}` and `{name:type}` are fields of the key; the text around them is literal. A field "
    "without a type is text unless noted, `ulid` is a ULID, `norm` is normalized text (NFKC, "
    "case folded, white space collapsed), `010d` is a whole number in 10 digits, and `?` allows "
    "`null`. Text is escaped where it contains the character that ends its field (`%3A` for `:`; "
    "`=3A` where keys are limited to the alphabet of NATS), so that a key can be read in only "
    "one way. In the JSON, unquoted words are types and quoted words are literal. Every derived "
    "row is written, changed and deleted in the commit of its record."
)


def document(title: str, doc: str, schemas: Sequence[SchemaText]) -> str:
    return "\n".join(_document(title, doc, schemas)).rstrip() + "\n"


def _document(title: str, doc: str, schemas: Sequence[SchemaText]) -> Iterator[str]:
    yield f"# {title}\n"
    if doc:
        yield f"{doc}\n"
    for schema in schemas:
        yield from _schema(schema, alone=len(schemas) == 1)
    yield "## How to read it\n"
    yield f"{_READING}\n"
    yield "## Limits\n"
    yield f"- a key: 1 to {KEY_BYTES_MAX:,} bytes of UTF-8"
    yield f"- a value: {VALUE_BYTES_MAX:,} bytes of compact JSON"
    yield f"- the name of a space: 1 to {SPACE_BYTES_MAX} bytes"


def _schema(schema: SchemaText, *, alone: bool) -> Iterator[str]:
    if not alone:
        yield f"## {schema.name}\n"
        if schema.doc:
            yield f"{schema.doc}\n"
    yield f"{schema.space}\n"
    for name, default in schema.fixed.items():
        yield f"`{{{name}}}` is a setting of the store, `{default}` by default.\n"
    yield "## Keys\n" if alone else "### Keys\n"
    for record in schema.records:
        yield f"- `{record.key}` → {record.name}"
        yield from (f"  - `{row.key}` → {row.value}" for row in record.derived)
    yield ""
    if alone:
        yield "## Records\n"
    for record in schema.records:
        yield from _record(record)
    yield from _ending(schema, "##" if alone else "###")


def _record(record: RecordText) -> Iterator[str]:
    yield f"### {record.name[:1].upper()}{record.name[1:].replace('_', ' ')}\n"
    if record.doc:
        yield f"{record.doc}\n"
    yield f"Key: `{record.key}`{_fields(record.fields)}\n"
    if "\n" in record.value or record.value.startswith("{"):
        yield f"```\n{record.value}\n```\n"
    else:
        yield f"Value: {record.value}{', changed by adding' if record.kind == 'counter' else ''}\n"
    for label, note in record.notes.items():
        yield f"- {label}: {note}"
    if record.notes:
        yield ""
    if record.derived:
        yield "Derived rows:\n"
        yield from (_row(row) for row in record.derived)
        yield ""


def _row(row: RowText) -> str:
    notes = "".join(f"; {label} {note}" for label, note in row.notes.items())
    return f"- {row.kind}: `{row.key}` → {row.value}{_fields(row.fields)}{notes}"


def _fields(fields: Sequence[FieldText]) -> str:
    """Describe the fields whose meaning the template does not show."""
    notes = [
        f"`{field.name}` is {field.type}" + (f" ({field.source})" if field.source else "")
        for field in fields
        if field.source or field.type not in _OBVIOUS
    ]
    return f", where {'; '.join(notes)}" if notes else ""


def _ending(schema: SchemaText, level: str) -> Iterator[str]:
    if schema.overlaps:
        yield f"{level} Overlaps\n"
        for scanned in dict.fromkeys([each.scanned for each in schema.overlaps]):
            inside = [each.within for each in schema.overlaps if each.scanned == scanned]
            within = ", ".join([f"`{other}`" for other in inside])
            yield f"- Scans of `{scanned}` leave out what lies within: {within}"
        yield ""
    if schema.migrations:
        yield f"{level} Migrations\n"
        for migration in schema.migrations:
            yield f"{migration.id}. {migration.description.rstrip('.')}, over each {migration.over}"
        yield ""
    if schema.operations:
        yield f"{level} Operations\n"
        for operation in schema.operations:
            doc = f": {operation.doc}" if operation.doc else ""
            types = f"{operation.request or 'nothing'} → {operation.reply or 'nothing'}"
            yield f"- `{operation.name}` ({operation.access}), {types}{doc}"
        yield ""


# Layouts: the names of tables, columns, buckets and attributes in each engine


def layout_names(system: System) -> dict[str, Any]:
    """Return the names that each engine gives to the rows of the system."""
    sql = system.layouts.sql or SqlLayout.named(system.name)
    jetstream = system.layouts.jetstream or JetstreamLayout()
    dynamodb = system.layouts.dynamodb or DynamodbLayout()
    columns = {
        name: getattr(sql, name)
        for name in ("space", "key", "value", "revision", "expires", "created", "updated")
        if getattr(sql, name) is not None
    }
    indexes = [name for name in (sql.by_expiry, sql.by_key) if name is not None]
    bucket = f"{jetstream.prefix}<space>" if jetstream.bucket_per_space else system.name
    attributes = {
        name: getattr(dynamodb, name) for name in ("space", "key", "value", "revision", "expires")
    }
    return {
        "sql": {"table": sql.rows, "columns": columns, "indexes": indexes},
        "jetstream": {"bucket": bucket},
        "dynamodb": {
            "attributes": attributes,
            "members": dynamodb.members,
            "lists": list(dynamodb.lists),
            "indexes": [path.index for path in dynamodb.paths],
        },
    }


def layout_section(system: System) -> str:
    """Return the names as a section of Markdown."""
    return "\n".join(_layout_lines(layout_names(system))) + "\n"


def _layout_lines(names: dict[str, Any]) -> Iterator[str]:
    yield "\n## In each engine\n"
    sql, dynamodb = names["sql"], names["dynamodb"]
    columns = ", ".join(_layout_name(name, column) for name, column in sql["columns"].items())
    yield f"- SQLite and PostgreSQL: table `{sql['table']}`, columns {columns}"
    yield f"- NATS JetStream: bucket `{names['jetstream']['bucket']}`"
    attributes = ", ".join(
        _layout_name(name, each) for name, each in dynamodb["attributes"].items()
    )
    text = f"- DynamoDB: attributes {attributes}"
    if dynamodb["members"] or dynamodb["lists"]:
        text += f"; flat members {_code_list([*dynamodb['members'], *dynamodb['lists']])}"
    if dynamodb["indexes"]:
        text += f"; indexes {_code_list(dynamodb['indexes'])}"
    yield text
    yield "- RocksDB: no names: a key is the space and the key"


def _layout_name(name: str, own: str) -> str:
    return f"`{own}`" if own == name else f"`{own}` ({name})"


def _code_list(names: list[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)


# Diagrams: each record with its key, and an arrow to each derived row


def mermaid(schemas: Sequence[SchemaText]) -> str:
    return "\n".join(_mermaid(schemas)) + "\n"


def _mermaid(schemas: Sequence[SchemaText]) -> Iterator[str]:
    yield "flowchart LR"
    for number, schema in enumerate(schemas):
        if len(schemas) > 1:
            yield f'  subgraph s{number}["{_entity(schema.name)}"]'
        for at, record in enumerate(schema.records):
            name = f"r{number}_{at}"
            yield f'  {name}["<b>{_entity(record.name)}</b><br/>{_entity(record.key)}"]'
            for row, derived in enumerate(record.derived):
                yield f'  {name} -->|{derived.kind}| {name}_{row}(["{_entity(derived.key)}"])'
        if len(schemas) > 1:
            yield "  end"


def _entity(text: str) -> str:
    """Escape the characters that Mermaid interprets."""
    return "".join(f"#{ord(c)};" if c in '"#;<>`' else c for c in text)


def dot(name: str, schemas: Sequence[SchemaText]) -> str:
    return "\n".join(_dot(name, schemas)) + "\n"


def _dot(name: str, schemas: Sequence[SchemaText]) -> Iterator[str]:
    yield f"digraph {_quoted(name)} {{"
    yield '  rankdir=LR; node [shape=box, fontname="monospace"]; edge [fontname="sans-serif"];'
    for number, schema in enumerate(schemas):
        yield f"  subgraph cluster_{number} {{ label={_quoted(schema.name)};"
        for at, record in enumerate(schema.records):
            yield from _dot_record(f"r{number}_{at}", record)
        yield "  }"
    yield "}"


def _dot_record(node: str, record: RecordText) -> Iterator[str]:
    label = f"{record.name}\n{record.key}"
    yield f"    {node} [label={_quoted(label)}, style=bold];"
    for row, derived in enumerate(record.derived):
        yield f"    {node}_{row} [label={_quoted(derived.key)}, style=rounded];"
        yield f"    {node} -> {node}_{row} [label={_quoted(derived.kind)}];"


def _quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n") + '"'


# JSON Schema (2020-12). Every value of a record is valid against the whole document; `x-records`
# has the type at each key, and the derived rows

_DIALECT = "https://json-schema.org/draft/2020-12/schema"


def json_schema(system: System) -> dict[str, Any]:
    declared = [(schema.name, record) for schema in system.schemas for record in schema.records]
    values, components = msgspec.json.schema_components(
        [record.type for _, record in declared], ref_template="#/$defs/{name}"
    )
    records = [
        _record_schema(schema, record, value)
        for (schema, record), value in zip(declared, values, strict=True)
    ]
    return {
        "$schema": _DIALECT,
        "title": system.title,
        "description": prose(system.doc).partition("\n")[0],
        "anyOf": _distinct(values),
        "$defs": components,
        "x-records": records,
    }


def _record_schema(schema: str, record: Record[Any], value: dict[str, Any]) -> dict[str, Any]:
    return {
        "schema": schema,
        "record": record.name,
        "kind": kind_of(record),
        "key": record.template.text,
        "value": value,
        "private": list(record.private),
        "derived": [{"kind": kind_of(each), "key": each.template.text} for each in record.derived],
    }


def _distinct(values: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    distinct: list[dict[str, Any]] = []
    for value in values:
        if value not in distinct:
            distinct.append(value)
    return distinct
