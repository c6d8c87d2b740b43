"""Declarations do not change once they are made: what has been made of one would not follow."""

from typing import Any, Self


class DeclarationType(type):
    """The type of declarations. It seals an object after the constructor of its class, which may
    call that of its base first."""

    def __call__(cls, *args: Any, **named: Any) -> Any:
        declared = super().__call__(*args, **named)
        vars(declared)["_is_made"] = True
        return declared


class Declaration(metaclass=DeclarationType):
    """An object whose attributes are set by its constructor."""

    def __setattr__(self, name: str, value: object) -> None:
        if "_is_made" in vars(self):
            raise AttributeError(f"A declaration does not change: declare {name!r} in a new one.")
        super().__setattr__(name, value)

    def _variant(self, **changes: object) -> Self:
        """Return a declaration with other attributes, and the form without a space still to be
        made. Nothing is checked or proved again."""
        made = object.__new__(type(self))
        attributes = {name: value for name, value in vars(self).items() if name != "unbound"}
        vars(made).update(attributes | {"_is_made": True} | changes)
        return made
