"""Spaces: the isolated parts of a store, by name."""

from typing import Final

from keyhouse.advice.arguments import checked
from keyhouse.errors import DeclarationError, KeyFieldError
from keyhouse.keys.segment import Segment
from keyhouse.limits import SPACE_BYTES_MAX
from keyhouse.schema.declaration import Declaration

MARK_SPACE: Final = "keyhouse-move"
"""The space of the target with one row, `move`, while a move into it is not finished."""

SERVICE_SPACE: Final = "keyhouse-service"
"""The rows by which the processes of a service share work, and see each other's settings."""

RESERVED_SPACES: Final = frozenset({MARK_SPACE, SERVICE_SPACE})
"""Spaces of no tenant. Their rows belong to the store they are in: they are not moved or backed
up."""


class Space(Declaration):
    """The spaces of a schema.

    description    one space in words: "a library"
    field          the key field that repeats the space's name
    segment        the type of the space's name
    name           the only space, if there is just one
    """

    @checked(DeclarationError)
    def __init__(
        self,
        description: str,
        /,
        *,
        field: str | None = None,
        segment: Segment | None = None,
        name: str | None = None,
    ) -> None:
        self.description = description
        self.field = field
        self.segment = segment
        self.name = name

    def bound(self, space: str) -> dict[str, object]:
        """Return the key fields that a store of this space fixes.

        Raises KeyFieldError if the name is not valid for this schema.
        """
        if not isinstance(space, str):
            raise KeyFieldError("A space's name must be text.", space=space)
        try:
            size = len(space.encode())
        except UnicodeEncodeError:
            raise KeyFieldError(
                "A space's name must be text: this one contains a lone surrogate.", space=space
            ) from None
        if not 0 < size <= SPACE_BYTES_MAX or "\0" in space:
            raise KeyFieldError(
                "A space's name has 1 to 255 bytes, and no U+0000.", space=space, bytes=size
            )
        if space in RESERVED_SPACES and space != self.name:
            raise KeyFieldError("Keyhouse keeps its own rows in this space.", space=space)
        if self.name is not None and space != self.name:
            raise KeyFieldError("The schema has only one space.", space=space, only=self.name)
        if self.segment is not None:
            try:
                self.segment.format(space)
            except ValueError as error:
                raise KeyFieldError(f"The space {error}.", space=space) from None
        return {} if self.field is None else {self.field: space}
