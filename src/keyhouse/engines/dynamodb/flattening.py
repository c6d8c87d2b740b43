"""Flattens a document into attributes, and rebuilds it byte for byte.

DynamoDB preserves neither the order of attributes nor the spelling of numbers (`1.0` comes back as
`1`). So a flattened document is rebuilt as the table would return it and compared:

| the attributes alone             | stored                                                     |
|----------------------------------|------------------------------------------------------------|
| reproduce the bytes              | all attributes, and `shape`, the order of the members      |
| do not, or take far more room    | `value`, the bytes; and attributes up to COPIES_BYTES_MAX, |
|                                  | the smallest first, for queries by other programs          |

Text, numbers, booleans, null and lists of these become attributes; a deeper member does not. The
paths of the layout are attributes in both cases, so the local indexes are complete.

An item that another program wrote has neither `shape` nor `value`. Its document is made of the
attributes that it has: see `foreign_document`.
"""

import re
from base64 import b64encode
from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from keyhouse.engines.dynamodb.layout import Layout, Path
from keyhouse.limits import KEY_BYTES_MAX

Attribute = dict[str, Any]
Item = dict[str, Attribute]

COPIES_BYTES_MAX: Final = 8 * 1_024
"""Bytes of attributes that are stored beside `value`; larger ones are left out first."""

_PLAIN_NUMBER = re.compile(r"(?!-0$)-?(?:0|[1-9][0-9]{0,17})(?:\.[0-9]{0,5}[1-9])?")
"""Numbers with one decimal spelling: no exponent, no trailing zero, well within 38 digits."""

_NUMBER_MIN, _NUMBER_MAX = 1e-129, 1e125
"""The range of DynamoDB's numbers, except 0."""

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder().decode
_decode_shape = msgspec.json.Decoder(list[tuple[str, list[str] | None]]).decode

Shape = list[tuple[str, list[str] | None]]
"""Each member with the names in it; None for a member that is one attribute."""


def flatten(value: bytes, layout: Layout) -> Item | None:
    """Return the attributes of a document, with `shape` or `value`; None if it has none."""
    document = _document(value, layout)
    if document is None:
        return None
    attributes: Item = {}
    shape: Shape = []
    is_exact = True
    for member, content in document.items():
        names = _names_of(member, content, layout)
        if names is None:
            is_exact = False
            continue
        for name, part in names.items():
            attribute, is_plain = _attribute(part)
            is_exact &= is_plain
            if attribute is not None:
                attributes[name] = attribute
        shape.append((member, list(content) if isinstance(content, dict) else None))
    text = _encode(shape).decode()
    paths = _paths(layout, attributes)
    if is_exact and _rebuild_from(text, attributes, layout.members) == value:
        exact = attributes | {layout.shape: {"S": text}}
        if len(value) <= COPIES_BYTES_MAX or _size(exact) <= len(value) + COPIES_BYTES_MAX:
            return exact | paths
    if len(value) > COPIES_BYTES_MAX:
        attributes = _smallest(attributes)
    return attributes | paths | {layout.value: {"S": value.decode()}}


def rebuild(item: Mapping[str, Attribute], layout: Layout) -> bytes:
    """Rebuild the document of an item that has a `shape`.

    If another program has removed an attribute that the shape names, the rest is the document.
    """
    try:
        return _rebuild_from(item[layout.shape]["S"], item, layout.members)
    except (KeyError, msgspec.DecodeError):
        return foreign_document(item, layout)


def foreign_document(item: Mapping[str, Attribute], layout: Layout) -> bytes:
    """Return the document of an item without `value` and `shape`, as JSON with sorted names.

    Attributes with a prefix of the layout become the members that are stored under it; every other
    one, except those of the engine, is a separate member.
    """
    own = {layout.space, layout.key, layout.revision, layout.expires, layout.ttl, layout.sweep}
    own |= {layout.shape, layout.value} | {path.attribute for path in layout.paths}
    groups: dict[str, dict[str, Attribute]] = {}
    others: dict[str, bytes] = {}
    for name in sorted(item.keys() - own):
        for member, prefix in layout.members.items():
            if name.startswith(prefix):
                groups.setdefault(member, {})[name[len(prefix) :]] = item[name]
                break
        else:
            others[name] = _json(item[name])
    members = {name: _object(groups[name].items()) for name in layout.members if name in groups}
    members |= {name: text for name, text in others.items() if name not in members}
    parts = [_encode(name) + b":" + text for name, text in members.items()]
    return b"{" + b",".join(parts) + b"}"


def _document(value: bytes, layout: Layout) -> dict[str, object] | None:
    """Return the document if one of its members is stored as attributes."""
    if not (layout.members or layout.lists) or not value.startswith(b"{"):
        return None
    try:
        document: dict[str, object] = _decode(value)
        value.decode()
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    is_flat = any(
        _names_of(name, content, layout) is not None for name, content in document.items()
    )
    return document if is_flat else None


def _names_of(member: str, content: object, layout: Layout) -> dict[str, object] | None:
    """Return the parts of a member by their attributes, or None if it is not stored as such."""
    if isinstance(content, dict) and member in layout.members:
        return {layout.members[member] + name: part for name, part in content.items()}
    is_flat = member in layout.lists and isinstance(content, list | bool)
    return {member: content} if is_flat else None


def _attribute(content: object) -> tuple[Attribute | None, bool]:
    """Return the attribute, if there can be one, and whether it is read back as it was written."""
    if isinstance(content, list):
        elements = [
            (None, False) if isinstance(each, list) else _attribute(each) for each in content
        ]
        if any(element is None for element, _ in elements):
            return None, False
        return {"L": [element for element, _ in elements]}, all(plain for _, plain in elements)
    if isinstance(content, str):
        return {"S": content}, True
    if isinstance(content, bool):
        return {"BOOL": content}, True
    if content is None:
        return {"NULL": True}, True
    if isinstance(content, int | float) and (
        content == 0 or _NUMBER_MIN <= abs(content) <= _NUMBER_MAX
    ):
        text = _encode(content).decode()
        return {"N": text}, _PLAIN_NUMBER.fullmatch(text) is not None
    return None, False


def _rebuild_from(
    shape: str, attributes: Mapping[str, Attribute], prefixes: Mapping[str, str]
) -> bytes:
    members = []
    for member, names in _decode_shape(shape):
        if names is None:
            content = _json(attributes[member])
        else:
            content = _object([(name, attributes[prefixes[member] + name]) for name in names])
        members.append(_encode(member) + b":" + content)
    return b"{" + b",".join(members) + b"}"


def _object(members: Sequence[tuple[str, Attribute]] | Any) -> bytes:
    return (
        b"{"
        + b",".join([_encode(name) + b":" + _json(attribute) for name, attribute in members])
        + b"}"
    )


def _json(attribute: Attribute) -> bytes:
    """Return an attribute of any of DynamoDB's types as JSON."""
    ((kind, content),) = attribute.items()
    match kind:
        case "N":
            number: str = content
            return number.encode()
        case "L":
            return b"[" + b",".join([_json(element) for element in content]) + b"]"
        case "M":
            return _object(sorted(content.items()))
        case "NULL":
            return b"null"
        case "NS":
            return b"[" + b",".join(number.encode() for number in sorted(content)) + b"]"
        case "SS":
            return _encode(sorted(content))
        case "B":
            return _encode(b64encode(content).decode())
        case "BS":
            return _encode([b64encode(each).decode() for each in sorted(content)])
        case _:
            return _encode(content)


def _size(attributes: Mapping[str, Attribute]) -> int:
    """Return about the bytes that DynamoDB counts for the attributes."""
    return sum(len(name.encode()) + len(_json(each)) for name, each in attributes.items())


def _smallest(attributes: Item) -> Item:
    """Return the smallest attributes that fit beside `value`."""
    sizes = sorted((_size({name: each}), name) for name, each in attributes.items())
    chosen: Item = {}
    used = 0
    for size, name in sizes:
        used += size
        if used > COPIES_BYTES_MAX:
            break
        chosen[name] = attributes[name]
    return chosen


def _paths(layout: Layout, attributes: Mapping[str, Attribute]) -> Item:
    paths = {path.attribute: _path(path, attributes) for path in layout.paths}
    return {name: text for name, text in paths.items() if text is not None}


def _path(path: Path, attributes: Mapping[str, Attribute]) -> Attribute | None:
    """Return the path attribute, or None: an index key has 1 to 1,024 bytes."""
    text = ""
    for name in path.parts:
        part = attributes.get(name, {}).get("S")
        if not part:
            break
        text += "/" + part.replace("%", "%25").replace("/", "%2F").replace("|", "%7C")
    return {"S": text} if 0 < len(text.encode()) <= KEY_BYTES_MAX else None
