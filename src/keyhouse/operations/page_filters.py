"""The filters of a page: leading fields of a key by equality, the next one by range or prefix."""

from collections.abc import Mapping
from typing import Any, Final

from keyhouse.errors import UsageError
from keyhouse.keys.segment import Segment
from keyhouse.operations.catalog import Fields, ServedDerived, ServedRecord
from keyhouse.operations.fields import field_of_json, field_of_text

__all__ = ["no_index", "page_arguments"]

_RANGES: Final = ("from", "to", "prefix")


def page_arguments(
    served: ServedRecord, index: ServedDerived[Any] | None, filters: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the arguments of `Store.page`. Raises UsageError, with the indexes that exist, if the
    key does not serve the filters."""
    segments = served.segments if index is None else index.segments
    names = list(segments)
    equal: Fields = {}
    bounds: dict[str, Any] = {}
    ranged: set[str] = set()
    for parameter, text in filters.items():
        name, dot, kind = parameter.rpartition(".")
        if not dot or kind not in _RANGES:
            name, kind = parameter, ""
        if name not in segments:
            raise no_index(served, by=None if index is None else index.name, filter=parameter)
        if not kind:
            equal[name] = _field(name, segments[name], text)
            continue
        ranged.add(name)
        bounds[kind] = text if kind == "prefix" else _field(name, segments[name], text)
    following = names[len(equal)] if len(equal) < len(names) else None
    if set(names[: len(equal)]) != set(equal) or (ranged and ranged != {following}):
        raise no_index(served, by=None if index is None else index.name, filter=", ".join(filters))
    if "prefix" in bounds:
        if len(bounds) > 1:
            raise UsageError("Give a range or a prefix of a field, not both.", field=following)
        return {**equal, "prefix": bounds["prefix"]}
    return {**equal, "between": (bounds.get("from"), bounds.get("to"))} if bounds else equal


def _field(name: str, segment: Segment, value: Any) -> Any:
    read = field_of_text if isinstance(value, str) else field_of_json
    return read(name, segment, value)


def no_index(served: ServedRecord, **given: object) -> UsageError:
    return UsageError(
        "No index serves this request: filter the leading fields by equality, and the next one by "
        "range or prefix.",
        record=served.name,
        **{name: value for name, value in given.items() if value is not None},
        key=", ".join(served.fields),
        indexes=[f"{name}: {', '.join(each.fields)}" for name, each in served.indexes.items()],
    )
