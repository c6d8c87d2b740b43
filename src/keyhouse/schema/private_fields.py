"""The fields of derived rows that may hold private attributes of their record in clear.

A row with such a field is written and used by the store as any other. But its keys are not shown to
callers, who would read the attribute there: services and the Studio ask `Derived.private`.
"""

from keyhouse.keys.template import Template
from keyhouse.schema.compiled_rows import FromAttribute, Source
from keyhouse.schema.derived import Derived

__all__ = ["is_private", "private_fields"]


def private_fields(row: Derived, private: tuple[str, ...], key: Template) -> tuple[str, ...]:
    """Return the fields of a row, and the parts of its value, that may hold private attributes. An
    HMAC holds none."""
    if not private:
        return ()
    fields = [
        name
        for name, segment in zip(row.template.fields, row.template.segments, strict=True)
        if not segment.is_hashed and is_private(_source(row, name, key), private)
    ]
    parts = [name for name, source in row.value_sources().items() if is_private(source, private)]
    return (*fields, *parts)


def is_private(source: Source | None, private: tuple[str, ...]) -> bool:
    """Return whether a source may be a private attribute: any function of the record may."""
    if isinstance(source, FromAttribute):
        return source.attribute in private
    if isinstance(source, str):
        return source.partition(".")[0] in private
    return source is not None


def _source(row: Derived, name: str, key: Template) -> Source | None:
    """Return the source of a field; None for one of the record's key, which every answer shows."""
    source = row.each.get(name, row.fields.get(name))
    if source is None:
        return None if name in key.fields else name
    return source
