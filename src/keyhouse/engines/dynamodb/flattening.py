"""A document as flat attributes, and back to the byte.

DynamoDB keeps neither the order of attributes nor how a number was written (`1.0` comes back as `1`). So a document is
taken apart, put together again from what the table would give back, and compared. Only when the bytes are the same are
the attributes all that is stored, with their order in `shape`; else the bytes are stored beside them as `value`, and the
attributes are there for who queries the table, not for us. Text, numbers, booleans, null and lists of those have an
attribute; a deeper member has none, and its document is kept as `value`.
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
"""A longer document is kept as `value` only: flat and beside its bytes it takes twice the room of a commit."""

_PLAIN_NUMBER = re.compile(r"(?!-0$)-?(?:0|[1-9][0-9]{0,17})(?:\.[0-9]{0,5}[1-9])?")
"""Numbers that every writer of decimals writes alike: no exponent, no trailing zero, within 38 digits by far."""

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder().decode
_decode_shape = msgspec.json.Decoder(list[tuple[str, list[str]]]).decode

Groups = dict[str, dict[str, object]]


def flattened(value: bytes, layout: Layout) -> Item | None:
    """The attributes of a document that lies flat, with `shape` or `value`; `None` for any other."""
    groups = _groups(value, layout)
    if groups is None:
        return None
    attributes: Item = {}
    whole = True
    for member, group in groups.items():
        for name, content in group.items():
            attribute = _attribute(content)
            if attribute is None:
                whole = False
            else:
                attributes[layout.members[member] + name] = attribute
    shape = _encode([(member, list(group)) for member, group in groups.items()]).decode()
    attributes |= {
        path.attribute: text
        for path in layout.paths
        if (text := _path(path, attributes)) is not None
    }
    if whole and _rebuilt(shape, attributes, layout.members) == value:
        attributes[layout.shape] = {"S": shape}
    else:
        attributes[layout.value] = {"S": value.decode()}
    return attributes


def rebuilt(item: Mapping[str, Attribute], layout: Layout) -> bytes:
    """The document of an item that has a `shape`."""
    return _rebuilt(item[layout.shape]["S"], item, layout.members)


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


def _rebuilt(shape: str, attributes: Mapping[str, Attribute], prefixes: Mapping[str, str]) -> bytes:
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
    """An index's key has 1 to 1,024 bytes: an item with a longer path is not in the index."""
    text = ""
    for name in path.parts:
        part = attributes.get(name, {}).get("S")
        if not part:
            break
        text += "/" + part.replace("%", "%25").replace("/", "%2F").replace("|", "%7C")
    return {"S": text} if 0 < len(text.encode()) <= KEY_BYTES_MAX else None
