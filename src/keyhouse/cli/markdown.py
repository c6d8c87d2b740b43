"""The Markdown of a described keyspace, in the order and the compact form in which people write such documents."""

from collections.abc import Iterator, Sequence

from keyhouse.limits import KEY_BYTES_MAX, SPACE_BYTES_MAX, VALUE_BYTES_MAX
from keyhouse.schema.description import FieldText, RecordText, RowText, SchemaText

_OBVIOUS = ("text", "a ULID")
"""What a field without a type, or of the type `ulid`, holds."""

_READING = (
    "`{name}` and `{name:type}` are fields of the key; the text around them stands as it is. A field without a type is text"
    " unless something else is said, `ulid` is a ULID, `norm` is text in its normal form (NFKC, case folded, white space"
    " collapsed), `010d` is a whole number in 10 digits, and `?` allows `null`. Text is escaped where it holds the character"
    " that ends its field (`%3A` for `:`; `=3A` where keys are limited to the alphabet of NATS), so that every key has one"
    " reading. In the JSON, words without quotes are types and words in quotes are literal. Every derived row is written,"
    " changed and deleted in the commit of its record."
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
    """What the pattern does not say by itself."""
    told = [
        f"`{field.name}` is {field.type}" + (f" ({field.source})" if field.source else "")
        for field in fields
        if field.source or field.type not in _OBVIOUS
    ]
    return f", where {'; '.join(told)}" if told else ""


def _ending(schema: SchemaText, level: str) -> Iterator[str]:
    if schema.overlaps:
        yield f"{level} Overlaps\n"
        for scanned in dict.fromkeys(scanned for scanned, _ in schema.overlaps):
            within = ", ".join(f"`{other}`" for by, other in schema.overlaps if by == scanned)
            yield f"- Scans of `{scanned}` leave out what lies within: {within}"
        yield ""
    if schema.migrations:
        yield f"{level} Migrations\n"
        for migration in schema.migrations:
            yield f"{migration.id}. {migration.description.rstrip('.')}, over each {migration.over}"
        yield ""
