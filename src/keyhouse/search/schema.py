"""The declaration of a search: the records, their texts, and the weight of each text."""

import hashlib
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, Generic, TypeVar

import msgspec

from keyhouse.errors import DeclarationError
from keyhouse.schema import Record
from keyhouse.search.folding import FOLDING_VERSION

__all__ = ["SearchSchema", "SearchSource"]

T = TypeVar("T")

FORMAT: Final = 1
"""Version of the file's tables."""

_NAME = re.compile(r"[a-z][a-z0-9_]*")

Texts = Mapping[str, str | Iterable[str] | None]


class SearchSource(msgspec.Struct, Generic[T], frozen=True, kw_only=True):
    """Records that are searched.

    `texts(value)` returns the searched texts of a record by field, a list for several texts, and
    None for a record that is not to be found (such as one in the bin). `filters(value)` returns
    exact values that a search can require. `sort(value)` orders records that match equally well; by
    default it is the key. All three are pure.
    """

    record: Record[T]
    texts: Callable[[T], Texts | None]
    filters: Callable[[T], Mapping[str, Iterable[str]]] | None = None
    sort: Callable[[T], str] | None = None


class SearchSchema:
    """`fields` are the searched texts with their weights: a match in one with weight 10 counts ten
    times one with weight 1. Increase `version` when `texts`, `filters` or `sort` return something
    else: files of another version are built again."""

    def __init__(
        self,
        name: str,
        *sources: SearchSource[Any],
        fields: Mapping[str, float],
        version: int = 1,
    ) -> None:
        if not sources or not fields:
            raise DeclarationError("A search has at least one source and one field.", search=name)
        for each in (name, *fields):
            if not _NAME.fullmatch(each):
                raise DeclarationError(
                    "Names of searches and their fields are lower case letters, digits and _.",
                    search=name,
                    name=each,
                )
        self.name = name
        self.sources: Sequence[SearchSource[Any]] = sources
        self.fields = dict(fields)
        self.version = version
        names = [source.record.name for source in sources]
        if len(names) != len(set(names)):
            raise DeclarationError("Two sources have the same record.", search=name, records=names)

    @property
    def columns(self) -> list[str]:
        return [f"text_{field}" for field in self.fields]

    def fingerprint(self) -> str:
        """Return a text that differs if the files of another declaration cannot be used."""
        parts = [
            str(FORMAT),
            FOLDING_VERSION,
            str(self.version),
            *self.fields,
            *(f"{source.record.name}={source.record.template.text}" for source in self.sources),
        ]
        return hashlib.sha256("\n".join(parts).encode()).hexdigest()
