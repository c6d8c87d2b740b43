"""Former names of the package: an import of one is an error that gives the present name."""

from typing import Final, NoReturn

__all__ = ["__getattr__", "renamed_verb"]

RENAMED: Final = {
    "Count": "RecordCount",
    "Match": "Regex",
    "Optional": "OptionalSegment",
    "Text": "TextSegment",
}
"""Present names by the former ones, of `keyhouse`, `keyhouse.keys` and `keyhouse.schema`."""

RENAMED_VERBS: Final = {"total": "record_count"}
"""Present verbs of a store by the former ones."""


def __getattr__(name: str) -> NoReturn:
    """The attribute hook of a module: raises ImportError for a former name."""
    if name in RENAMED:
        raise ImportError(f"`{name}` is now `{RENAMED[name]}`: import that name from keyhouse.")
    raise AttributeError(f"module 'keyhouse' has no attribute {name!r}")


def renamed_verb(store: object, name: str) -> NoReturn:
    """The attribute hook of a store: raises AttributeError, with the present name of a verb."""
    kind = type(store).__name__
    if name in RENAMED_VERBS:
        raise AttributeError(f"`{kind}.{name}` is now `{kind}.{RENAMED_VERBS[name]}`.")
    raise AttributeError(f"{kind!r} object has no attribute {name!r}")
