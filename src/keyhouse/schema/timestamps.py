"""Members of a record that hold times: checked and brought into one form when they are written."""

from collections.abc import Sequence
from typing import Any, TypeVar

import msgspec
from msgspec import inspect

from keyhouse.errors import DeclarationError, DocumentError, RecordError
from keyhouse.schema.times import TimeFormat

T = TypeVar("T")


class Timestamps:
    """Paths of attributes, with dots into nested Structs, each a time or a list of times.

    None and an unset member stay as they are.
    """

    __slots__ = ("_hidden", "_paths", "_record", "_times")

    def __init__(
        self,
        type_: Any,
        paths: Sequence[str],
        times: TimeFormat,
        *,
        record: str,
        hidden: Sequence[str] = (),
    ) -> None:
        """`hidden` are attributes whose values no error has."""
        self._record = record
        self._hidden = [_member(type_, path, record) for path in paths if _first(path) in hidden]
        self._times = times
        self._paths = [(path.split("."), _member(type_, path, record)) for path in paths]

    @property
    def members(self) -> list[str]:
        """The paths as the JSON has them."""
        return [member for _, member in self._paths]

    def normalized(self, value: T, before: T | None) -> T:
        """Return the value with its times in UTC, in the record's format.

        Raises RecordError, which names the member, for text that is not a time with a zone. A
        member that the stored record `before` has already is kept, since another program may have
        written it.
        """
        for path, member in self._paths:
            value = self._replaced(value, before, path, member)
        return value

    def invalid(self, value: object) -> list[str]:
        """Return the members of a stored record that hold no time."""
        members = []
        for path, member in self._paths:
            try:
                self._replaced(value, None, path, member)
            except RecordError:
                members.append(member)
        return members

    def _replaced(self, value: Any, before: Any, path: list[str], member: str) -> Any:
        name, *rest = path
        part = getattr(value, name)
        stored = getattr(before, name, None)
        if part is None or part is msgspec.UNSET:
            return value
        after = (
            self._replaced(part, stored, rest, member)
            if rest
            else self._normal(part, stored, member)
        )
        return value if after == part else msgspec.structs.replace(value, **{name: after})

    def _normal(self, value: Any, stored: Any, member: str) -> Any:
        if isinstance(value, list):
            known = stored if isinstance(stored, list) else ()
            return [self._normal(each, each if each in known else None, member) for each in value]
        try:
            return self._times.format(self._times.parse(value))
        except DocumentError as error:
            if value == stored:
                return value
            raise RecordError(
                "A member of the value is not a time.",
                record=self._record,
                member=member,
                **({} if member in self._hidden else {"given": value, "reason": str(error)}),
            ) from None


def _first(path: str) -> str:
    return path.partition(".")[0]


def _member(type_: Any, path: str, record: str) -> str:
    """Return the path as the JSON has it; raises DeclarationError if the type has no such
    attribute."""
    names: list[str] = []
    info: inspect.Type = inspect.type_info(type_)
    for name in path.split("."):
        structs = [info, *getattr(info, "types", ())]
        fields = {
            each.name: each
            for struct in structs
            if isinstance(struct, inspect.StructType)
            for each in struct.fields
        }
        if name not in fields:
            raise DeclarationError(
                "The record's type has no such attribute that holds a time.",
                record=record,
                attribute=path,
            )
        names.append(fields[name].encode_name)
        info = fields[name].type
    return ".".join(names)
