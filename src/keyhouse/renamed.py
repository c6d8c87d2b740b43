"""Former names of the package: an import of one is an error that gives the present name."""

from typing import Final, NoReturn

__all__ = ["RenamedVerb", "__getattr__"]

RENAMED: Final = {
    "Count": "RecordCount",
    "Match": "Regex",
    "Optional": "OptionalSegment",
    "Text": "TextSegment",
}
"""Present names by the former ones, of `keyhouse`, `keyhouse.keys` and `keyhouse.schema`."""


def __getattr__(name: str) -> NoReturn:
    """The attribute hook of a module: raises ImportError for a former name."""
    if name in RENAMED:
        raise ImportError(f"`{name}` is now `{RENAMED[name]}`: import that name from keyhouse.")
    raise AttributeError(f"module 'keyhouse' has no attribute {name!r}")


class RenamedVerb:
    """A former verb of a store: reading it raises AttributeError, with the present name.

    An attribute hook of the class would do so as well, but slows down every attribute of a store.
    """

    def __init__(self, present: str) -> None:
        self._present = present

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    def __get__(self, store: object, kind: type) -> NoReturn:
        raise AttributeError(
            f"`{kind.__name__}.{self._name}` is now `{kind.__name__}.{self._present}`."
        )
