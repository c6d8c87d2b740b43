"""How rows look natively in a DynamoDB table: what attributes are called, and which documents lie flat.

A layout is the engine's own table under other names, never a copy. Whatever it says, the engine keeps the same promise. It
knows members of JSON documents by their names, and nothing of the schema that they come from.
"""

from typing import Final

import msgspec

from keyhouse.errors import DeclarationError


class Path(msgspec.Struct, frozen=True):
    """An attribute that is made of others: `/1446/1450` of two. The first that is absent or empty ends it.

    `parts` are flat attributes that hold text; in a part, the characters `/`, `|` and `%` are percent-encoded. `index` is
    the local secondary index on it, so that a plain query finds the items with `begins_with`.
    """

    attribute: str
    parts: tuple[str, ...]
    index: str


class Layout(msgspec.Struct, frozen=True, kw_only=True):
    """The names of attributes. `members`: a document whose members are all among these, each an object, lies flat: the
    members of `attr` become attributes with the prefix that stands here for it.

    `value` holds a document that does not lie flat, or would not come back to the byte; `shape` names the attributes of one
    that does, in the order of its members. See `flat.py`.
    """

    space: str = "space"
    key: str = "key"
    value: str = "value"
    revision: str = "revision"
    expires: str = "expires"
    ttl: str = "ttl"
    sweep: str = "sweep"
    shape: str = "shape"
    members: dict[str, str] = {}
    paths: tuple[Path, ...] = ()

    def __post_init__(self) -> None:
        own = [
            self.space,
            self.key,
            self.value,
            self.revision,
            self.expires,
            self.ttl,
            self.sweep,
            self.shape,
        ]
        own += [path.attribute for path in self.paths]
        prefixes = list(self.members.values())
        taken = [name for name in own if any(name.startswith(prefix) for prefix in prefixes)]
        nested = [
            one
            for one in prefixes
            for other in prefixes
            if one is not other and one.startswith(other)
        ]
        if taken or nested or len(own) != len(set(own)) or "" in own:
            raise DeclarationError(
                "Two attributes of the layout could have the same name.",
                names=own,
                prefixes=prefixes,
            )


_OF_SYSTEMS: Final = {
    "history": Layout(
        space="profileId",
        key="sortKey",
        members={"attr": "a.", "ext": "e.", "m": "m."},
        paths=(
            Path(
                "path.hierarchy", ("e.showCategoryId", "e.seasonCategoryId"), "path.hierarchy-index"
            ),
            Path("path.sport", ("e.sport", "e.series-id"), "path.sport-index"),
        ),
    ),
}


def layout_of(system: str) -> Layout:
    """The layout that a system's document asks for, or else the usual one."""
    return _OF_SYSTEMS.get(system, Layout())
