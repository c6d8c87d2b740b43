"""Diagrams of a keyspace, for Mermaid and Graphviz: each record with its key, and an arrow to each
derived row."""

from collections.abc import Iterator, Sequence

from keyhouse.schema.description import RecordText, SchemaText

__all__ = ["dot", "mermaid"]


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
