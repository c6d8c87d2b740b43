"""Texts of the OpenAPI document about the parameters of a served schema's routes."""

from collections.abc import Iterable, Mapping
from typing import Final

from keyhouse.keys.segment import Segment

__all__ = ["COMMON", "field_docs", "filter_docs"]

COMMON: Final = {
    "by": "The name of a derived row: an index, a unique row, a count or a summary.",
    "order": "`asc`, or `desc` for the reverse order.",
    "limit": "The most items of a page.",
    "cursor": "The `cursor` of the page before: the next page starts there.",
    "ttl": "Seconds until the record expires.",
    "days": "The number of days (UTC), with today.",
    "record": "The record, counter or log whose changes are sent.",
    "since": "The revision after which changes are sent; by default, from now on.",
    "Keyhouse-Space": "The space, for tokens with the scope `spaces`.",
    "Idempotency-Key": "A text of your choice: requests with the same one are applied once.",
}
"""Parameters and headers that are not key fields."""


def field_docs(segments: Mapping[str, Segment]) -> dict[str, str]:
    """Return the texts of key fields that are parameters."""
    return {
        name: f"The key field `{name}`: {segment.description}."
        for name, segment in segments.items()
    }


def filter_docs(rows: Iterable[Mapping[str, Segment]]) -> dict[str, str]:
    """Return the texts of the filters of a list by the key fields of these rows."""
    docs: dict[str, str] = {}
    for segments in rows:
        for name, segment in segments.items():
            docs[name] = f"Only those whose `{name}` is this: {segment.description}."
            docs[f"{name}.from"] = f"Only those whose `{name}` is this or greater (inclusive)."
            docs[f"{name}.to"] = f"Only those whose `{name}` is less than this (exclusive)."
            docs[f"{name}.prefix"] = f"Only those whose `{name}` starts with this text."
    return docs
