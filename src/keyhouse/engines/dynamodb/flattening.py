"""Flattens a document into attributes, and rebuilds it byte for byte.

DynamoDB preserves neither the order of attributes nor the spelling of numbers (`1.0` comes back as
`1`). So a flattened document is rebuilt as the table would return it and compared. Only if the
bytes are equal are the attributes stored alone, with their order in `shape`; otherwise the bytes
are stored as `value` as well, and the attributes serve queries by other programs only. Text,
numbers, booleans, null and lists of these become attributes; a deeper member does not, and its
document is stored with `value`.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from keyhouse.engines.dynamodb.layout import Layout, Path
from keyhouse.limits import KEY_BYTES_MAX

Attribute = dict[str, Any]
Item = dict[str, Attribute]

FLAT_BYTES_MAX: Final = 8 * 1_024
"""A longer document is stored as `value` only: both forms would take twice the bytes."""

_PLAIN_NUMBER = re.compile(r"(?!-0$)-?(?:0|[1-9][0-9]{0,17})(?:\.[0-9]{0,5}[1-9])?")
"""Numbers with one decimal spelling: no exponent, no trailing zero, well within 38 digits."""

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder().decode
_decode_shape = msgspec.json.Decoder(list[tuple[str, list[str]]]).decode

Groups = dict[str, dict[str, object]]


def flatten(value: bytes, layout: Layout) -> Item | None:
    """Return the attributes of a document, with `shape` or `value`; None if it is not flattened."""
    groups = _groups(value, layout)
    if groups is None:
        return None
    attributes: Item = {}
    is_complete = True
    for member, group in groups.items():
        for name, content in group.items():
            attribute = _attribute(content)
            if attribute is None:
                is_complete = False
            else:
                attributes[layout.members[member] + name] = attribute
    shape = _encode([(member, list(group)) for member, group in groups.items()]).decode()
    attributes |= {
        path.attribute: text
        for path in layout.paths
        if (text := _path(path, attributes)) is not None
    }
    if is_complete and _rebuild_from(shape, attributes, layout.members) == value:
        attributes[layout.shape] = {"S": shape}
    else:
        attributes[layout.value] = {"S": value.decode()}
    return attributes


def rebuild(item: Mapping[str, Attribute], layout: Layout) -> bytes:
    """Rebuild the document of an item that has a `shape`."""
    return _rebuild_from(item[layout.shape]["S"], item, layout.members)


def _groups(value: bytes, layout: Layout) -> Groups | None:
    if not layout.members or len(value) > FLAT_BYTES_MAX or not value.startswith(b"{"):
        return None
    try:
        document = _decode(value)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    if not document or not all(
        name in layout.members and isinstance(document[name], dict) for name in document
    ):
        return None
    groups: Groups = document
    return groups


def _attribute(content: object) -> Attribute | None:
    if isinstance(content, list):
        elements = [
            None if isinstance(element, list) else _attribute(element) for element in content
        ]
        return None if None in elements else {"L": elements}
    if isinstance(content, str):
        return {"S": content}
    if isinstance(content, bool):
        return {"BOOL": content}
    if content is None:
        return {"NULL": True}
    if isinstance(content, int | float) and _PLAIN_NUMBER.fullmatch(
        text := _encode(content).decode()
    ):
        return {"N": text}
    return None


def _rebuild_from(
    shape: str, attributes: Mapping[str, Attribute], prefixes: Mapping[str, str]
) -> bytes:
    members = [
        _encode(member)
        + b":"
        + _object([(name, attributes[prefixes[member] + name]) for name in names])
        for member, names in _decode_shape(shape)
    ]
    return b"{" + b",".join(members) + b"}"


def _object(members: Sequence[tuple[str, Attribute]]) -> bytes:
    return (
        b"{"
        + b",".join([_encode(name) + b":" + _json(attribute) for name, attribute in members])
        + b"}"
    )


def _json(attribute: Attribute) -> bytes:
    ((kind, content),) = attribute.items()
    if kind == "N":
        number: str = content
        return number.encode()
    if kind == "L":
        return b"[" + b",".join([_json(element) for element in content]) + b"]"
    return b"null" if kind == "NULL" else _encode(content)


def _path(path: Path, attributes: Mapping[str, Attribute]) -> Attribute | None:
    """Return the path attribute, or None: an index key has 1 to 1,024 bytes."""
    text = ""
    for name in path.parts:
        part = attributes.get(name, {}).get("S")
        if not part:
            break
        text += "/" + part.replace("%", "%25").replace("/", "%2F").replace("|", "%7C")
    return {"S": text} if 0 < len(text.encode()) <= KEY_BYTES_MAX else None
