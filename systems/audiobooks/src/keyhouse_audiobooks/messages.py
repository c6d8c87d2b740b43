"""Types of requests and replies that several rooms share. Those of a room are in its `messages`."""

from typing import Annotated, Generic, TypeVar

from msgspec import Meta, Struct

__all__ = ["Count", "Data", "Id", "Name", "Title"]

T = TypeVar("T")

Id = Annotated[str, Meta(pattern=r"^[0-7][0-9A-HJKMNP-TV-Z]{25}$(?!\n)")]
Name = Annotated[str, Meta(min_length=1, max_length=500)]
Title = Annotated[str, Meta(min_length=1, max_length=5_000)]
"""Beyond 900 bytes of its normal form, a title is cut in the keys of indexes."""


class Data(Struct, Generic[T]):
    """The form of every reply that is not an error."""

    data: T


class Count(Struct):
    count: int
