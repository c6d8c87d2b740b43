"""The JSON of a record: how a value becomes a row, and a row a value again."""

import copy
import re
from collections.abc import Collection
from functools import cached_property
from typing import Any, Final, Generic, Protocol, TypeGuard, TypeVar

import msgspec
from msgspec import inspect

from keyhouse.advice.nearest import nearest
from keyhouse.errors import (
    DeclarationError,
    DocumentError,
    NewerError,
    RecordError,
    UnreadableError,
)
from keyhouse.schema import document
from keyhouse.schema.compiled_rows import attribute
from keyhouse.schema.merge_patch import merge_patch
from keyhouse.schema.record_check import CheckedRecord, members_to_check, members_to_check_first
from keyhouse.schema.unknown_members import (
    KnownMembers,
    KnownPart,
    known_members,
    known_part,
    without_former,
)

T = TypeVar("T")

KEEP: Final = "keep"
"""`Record(unknown=KEEP)`: a rewrite keeps the members that this code does not know."""


_UNREADABLE: Final = "A stored row does not decode as its record; see `keyhouse verify`."
_OF_ANOTHER_TYPE: Final = (
    "A stored row does not have its record's type: give a member that is new in the declaration a"
    " default, migrate the rows if its type has changed; see `keyhouse verify`."
)

_QUOTED: Final = re.compile(r"^(Invalid (?:enum )?value) .*?(?= - at `[^`]*`$|$)", re.DOTALL)
"""A reason of msgspec that quotes the value, as it does those of a Literal, an Enum and a tag."""

_UNDECODABLE: Final = (msgspec.MsgspecError, UnicodeDecodeError, DocumentError, RecursionError)


class MemberSealer(Protocol):
    """Encrypts members of a record's JSON; implemented by the store."""

    def seal(self, data: bytes, members: tuple[str, ...], key: str) -> bytes: ...

    def unseal(self, data: bytes, members: tuple[str, ...], key: str) -> bytes: ...

    def is_current(self, data: bytes, members: tuple[str, ...]) -> bool: ...


class RecordJson(Generic[T]):
    """The JSON of a record's values: knows the type and the members, and nothing of keys."""

    def __init__(self, type: type[T], declared: CheckedRecord) -> None:
        self.type = type
        self.name = declared.name
        self.times = declared.times
        self.version = declared.version
        self.unknown = declared.unknown
        self.keeps_unknown = declared.keeps_unknown
        self.private = declared.private
        self.expiry = expiry = declared.expiry
        self.expires_by_field = expiry is not None and expiry.mode == "field"
        self.upgrade = declared.upgrade
        self.sealed = declared.sealed
        self._decoder = _decoder(type)
        self._decode_plainly = (
            self._decoder.decode if self.upgrade is None and self.unknown is None else None
        )
        """The whole of `decode`, where no more than the version is to be checked."""
        self._members = (
            {f.name: f.encode_name for f in msgspec.structs.fields(type)} if is_struct(type) else {}
        )
        self.is_struct = is_struct(type)
        self.attributes = frozenset(self._members)
        self.empty_by_default = frozenset(
            [f.name for f in msgspec.structs.fields(type) if f.default == ""]
            if is_struct(type)
            else []
        )
        self.type_info = info = inspect.type_info(type)
        if isinstance(info, inspect.CustomType):
            raise DeclarationError(
                f"A record is a msgspec Struct, or a type of JSON: write `class {type.__name__}"
                "(msgspec.Struct)`.",
                type=type,
            )
        self._members_to_check = members_to_check(info)
        self._members_to_check_first = members_to_check_first(info)
        if self.keeps_unknown and (self._known is None or KEEP in self.attributes):
            raise DeclarationError(
                "Only a Struct can have unknown members, and `keep` cannot be an attribute of it.",
                type=type,
            )

    def is_live(self, value: T, key: str, now: int) -> bool:
        """Return whether a stored record has not expired by its own field, whatever its row says:
        other programs write rows without an expiry.

        Raises UnreadableError if that field holds no time.
        """
        if not self.expires_by_field:
            return True
        expires = self.field_expiry(value, key)
        return expires is None or expires > now

    def field_expiry(self, value: T, key: str) -> int | None:
        """Return the time at which a stored record expires by its own field; None if it has none.

        Raises UnreadableError if that field holds no time.
        """
        if not self.expires_by_field:
            return None
        assert self.expiry is not None
        try:
            text = attribute(self.expiry.field)(value)
            return None if text is None or text is msgspec.UNSET else self.times.parse(text)
        except DocumentError as error:
            raise UnreadableError(
                "The expiry of a stored record is not a time; see `keyhouse verify`.",
                record=self.name,
                key=key,
                member=self.expiry.field,
                **({} if self.expiry.field in self._hidden else {"reason": str(error)}),
            ) from None

    @property
    def _hidden(self) -> tuple[str, ...]:
        """The attributes whose values no error has: it goes to callers, and into logs."""
        return (*self.private, *self.sealed)

    def _reason(self, error: Exception) -> str:
        """Return why msgspec rejects a value; without the value, which may be a hidden one's."""
        return _QUOTED.sub(r"\1", str(error)) if self._hidden else str(error)

    def encode(self, value: T) -> bytes:
        """Return the JSON of a value. Raises RecordError or DocumentError if it would not decode
        again."""
        return self.encode_and_read(value)[0]

    def encode_and_read(self, value: T) -> tuple[bytes, T]:
        """Return the JSON of a value, and the value as it will be read: an int as a float, where
        that is its type."""
        if self.type is Any and isinstance(value, document.Compact):
            return value.text, value
        members = self._members_to_check_first
        if members is None or (members and not isinstance(value, msgspec.Struct)):
            document.check(value, typed=True)
        else:
            for name in members:
                document.check(getattr(value, name), depth=1, typed=True)
        plain: object = value if self.unknown is None else self._with_unknown(value)
        data = document.encode_checked(plain)
        try:
            read = self._decoder.decode(data) if self.unknown is None else self._read(data)
        except msgspec.ValidationError as error:
            if self._members_to_check:
                document.check(value, typed=True)  # a NaN in another member is the better reason
            raise RecordError(
                "The value does not have its record's type.",
                record=self.name,
                reason=self._reason(error),
            ) from None
        if read != value:
            self._reject_changed(value, read)
        return data, read

    def keep_from_row(self, data: bytes, stored: bytes, before: T) -> bytes:
        """Return the JSON of a value with the unknown members of the row that it replaces, which
        was read as `before`."""
        assert self._known is not None
        try:
            if document.encode_checked(before) == stored:  # it has no others
                return data
        except DocumentError:
            pass
        if (plain := self._parse_row_with_unknown(stored)) is None:
            return data
        written = document.parse(data)
        self._known.keep(plain, written)
        return document.encode_checked(written)

    def keep_from_document(self, data: bytes, plain: Any) -> bytes:
        """Return the JSON of a value with the unknown members of the parsed JSON that it was read
        from."""
        if not self.keeps_unknown or self._known is None:
            return data
        if self._known.first_unknown(plain) is None:
            return data
        written = document.parse(data)
        self._known.keep(plain, written)
        return document.encode(written)

    def kept_for(self, other: "RecordJson[Any]", stored: bytes) -> Any:
        """Return the parsed JSON of a row of this record without the members that `other`, which
        replaces it, no longer has: the unknown ones are kept from it. None if there are none."""
        if self._known is None or other._known is None:
            return None
        if (plain := self._parse_row_with_unknown(stored)) is None:
            return None
        return without_former(plain, self._known, other._known)

    def merge_from_row(self, plain: Any, stored: bytes | None) -> Any:
        """Return parsed JSON of this record with the unknown members of a stored row."""
        if not self.keeps_unknown or stored is None or not isinstance(plain, dict):
            return plain
        assert self._known is not None
        if (stored_plain := self._parse_row_with_unknown(stored)) is None:
            return plain
        whole = copy.deepcopy(plain)
        self._known.keep(stored_plain, whole)
        return whole

    def _parse_row_with_unknown(self, stored: bytes) -> Any:
        """Return the parsed JSON of a row if it has unknown members, else None. Sealed members are
        left out: what is in them is encrypted."""
        assert self._known is not None
        try:
            plain = document.parse(stored if self.upgrade is None else self._upgraded(stored, ""))
        except (DocumentError, UnreadableError):
            return None
        if self.sealed and isinstance(plain, dict):
            sealed = self.sealed_members
            plain = {name: part for name, part in plain.items() if name not in sealed}
        return None if self._known.first_unknown(plain) is None else plain

    def parse(self, text: bytes) -> T:
        """Return the value of JSON text from outside. Raises RecordError or DocumentError if it is
        invalid."""
        document.parse(text)  # rejects what no record may hold
        try:
            return self._read(text)
        except msgspec.MsgspecError as error:
            raise RecordError(
                "The value does not have its record's type.",
                record=self.name,
                reason=self._reason(error),
            ) from None

    def parse_document(self, text: bytes) -> tuple[T, Any]:
        """Return the value of JSON text from outside, and the parsed JSON. Raises as
        `strictly_accepted` does."""
        plain = document.parse(text)
        return self.strictly_accepted(plain), plain

    def accepted(self, plain: object) -> T:
        """Return the value of parsed JSON. Raises RecordError if it does not have the record's
        type."""
        try:
            return self._converted(plain)
        except msgspec.ValidationError as error:
            raise RecordError(
                "The value does not have its record's type.",
                record=self.name,
                reason=self._reason(error),
            ) from None

    def decode(self, data: bytes, key: str = "") -> T:
        """Return the value of a stored row. Raises UnreadableError or NewerError if it is not of
        this record."""
        if self._decode_plainly is not None:
            try:
                value = self._decode_plainly(data)
            except _UNDECODABLE:
                pass  # what follows says why
            else:
                if self.version is None or getattr(value, self.version[0]) <= self.version[1]:
                    return value
        if self.upgrade is not None:
            data = self._upgraded(data, key)
        try:
            value = self._read(data)
        except _UNDECODABLE as error:
            self._reject_newer(data, key)
            is_json = isinstance(error, msgspec.ValidationError)
            raise UnreadableError(
                _OF_ANOTHER_TYPE if is_json else _UNREADABLE,
                record=self.name,
                key=key,
                reason=self._reason(error),
            ) from None
        if self.version is not None and getattr(value, self.version[0]) > self.version[1]:
            self._reject_newer(data, key)
        return value

    @cached_property
    def sealed_members(self) -> tuple[str, ...]:
        return tuple([self._members[name] for name in self.sealed])

    @cached_property
    def _private_members(self) -> frozenset[str]:
        return frozenset([self._members[name] for name in self.private])

    def plain(self, value: T) -> Any:
        """Return the value as plain JSON, with its private attributes."""
        if self.unknown is not None:
            return self._with_unknown(value)
        return msgspec.to_builtins(value, str_keys=True)

    def member(self, attribute: str) -> str:
        """Return the JSON name of an attribute."""
        return self._members[attribute]

    def strictly_accepted(self, plain: object) -> T:
        """Return the value of parsed JSON from outside. Raises RecordError if it does not have the
        record's type, or has members that the record neither knows nor keeps."""
        if (unknown := self._first_rejected(plain)) is not None:
            raise RecordError(
                "The value has a member that its record does not.",
                record=self.name,
                member=unknown,
                **self._like(unknown),
            )
        return self.parse(document.encode(plain))

    def _like(self, unknown: str) -> dict[str, object]:
        """Return the record's own members, and the nearest, for the error of an unknown one. The
        private ones are not named: the error goes to callers."""
        if "." in unknown or "[" in unknown or self._known is None:
            return {}  # a member of a member
        known = sorted(self._known.names - self._private_members)
        return nearest(unknown, known)

    def _first_rejected(self, plain: Any) -> str | None:
        """Return the path of an unknown member that would be lost, or None."""
        if self._known is None or not isinstance(plain, dict):
            return None if self._known_part is None else self._known_part.first_unknown(plain)
        if self.keeps_unknown:
            return self._known.first_unknown_inside(plain, self.sealed_members)
        if self.unknown is not None:
            return self._known.first_unknown_inside(plain)
        return self._known.first_unknown(plain)

    def patched(self, value: T, patch: Any, stored: bytes | None = None) -> tuple[T, Any]:
        """Return the value with a merge patch (RFC 7396) applied, and its JSON with the members
        that the record keeps: those of the patch, and of the `stored` row. Raises RecordError if
        the result is not of the record."""
        document.check(patch)
        plain = merge_patch(self.merge_from_row(self.plain(value), stored), patch)
        return self.strictly_accepted(plain), plain

    @cached_property
    def _known(self) -> KnownMembers | None:
        return known_members(self.type_info)

    @cached_property
    def _known_part(self) -> KnownPart | None:
        return known_part(self.type_info)

    def knows(self, members: Collection[str]) -> bool:
        """Return whether all members of a document are members of the type."""
        return self._known is not None and self._known.names.issuperset(members)

    def shown(self, value: T, stored: bytes | None = None) -> Any:
        """Return the value as plain JSON without its private attributes, and with the members of
        the `stored` row that the record keeps."""
        return self.without_private(self.merge_from_row(self.plain(value), stored))

    def without_private(self, plain: Any) -> Any:
        """Return parsed JSON of this record without the members of its private attributes."""
        if not self.private or not isinstance(plain, dict):
            return plain
        hidden = self._private_members
        return {name: part for name, part in plain.items() if name not in hidden}

    def _read(self, data: bytes) -> T:
        """Decode a value, with unknown members in the attribute that holds them."""
        if self.unknown is None:
            return self._decoder.decode(data)
        return self._converted(document.parse(data))

    def _converted(self, plain: Any) -> T:
        if self.unknown is None:
            return msgspec.convert(plain, self.type, str_keys=True)
        if not isinstance(plain, dict):
            raise msgspec.ValidationError(f"Expected `object`, got `{type(plain).__name__}`")
        names = [name for own, name in self._members.items() if own != self.unknown]
        known = {name: plain[name] for name in names if name in plain}
        others = {name: part for name, part in plain.items() if name not in known}
        return replaced(msgspec.convert(known, self.type, str_keys=True), {self.unknown: others})

    def _with_unknown(self, value: T) -> dict[str, Any]:
        assert self.unknown is not None
        plain: dict[str, Any] = msgspec.to_builtins(value, str_keys=True)
        others = plain.pop(self._members[self.unknown], None) or {}
        return plain | {name: part for name, part in others.items() if name not in plain}

    def _upgraded(self, data: bytes, key: str) -> bytes:
        assert self.upgrade is not None and self.version is not None
        member = self._members[self.version[0]]
        try:
            plain = document.parse(data)
            number = plain.get(member, 0) if isinstance(plain, dict) else None
            if not isinstance(number, int) or number >= self.version[1]:
                return data
            return document.encode(self.upgrade(plain) | {member: self.version[1]})
        except (DocumentError, LookupError, TypeError, ValueError, AttributeError) as error:
            raise UnreadableError(
                "A stored row cannot be upgraded: it is not of an older version of its record.",
                record=self.name,
                key=key,
                reason=repr(error),
            ) from error

    def _reject_newer(self, data: bytes, key: str) -> None:
        if self.version is None:
            return
        try:
            number = document.parse(data).get(self._members[self.version[0]])
        except (DocumentError, AttributeError):
            return
        if isinstance(number, int) and number > self.version[1]:
            raise NewerError(
                "The row was written by newer code: use the newer program.",
                key=key,
                found=number,
                known=self.version[1],
            )

    def _reject_changed(self, value: T, read: T) -> None:
        """Reject a value that JSON changes: NaN is read back as null, bytes as text."""
        if self._members_to_check:
            document.check(value, typed=True)
        if self.type is Any:
            raise DocumentError("The value is not made of JSON's own types.", record=self.name)
        for name in self._members or ("",):
            written, reread = (getattr(value, name), getattr(read, name)) if name else (value, read)
            if name != self.unknown and not document.round_trips(written, reread):
                document.check_names(written)  # the better reason
                raise RecordError(
                    "The value would be read back as another one: where its type is not declared,"
                    " write text, numbers, lists and dicts alone.",
                    record=self.name,
                    attribute=name,
                    given=type(written).__name__,
                )

    def other_type(self, value: object, error: Exception | None = None) -> RecordError:
        """Return the error for a value that is not of this record."""
        sentence = "The value does not have its record's type."
        reason = {} if error is None else {"reason": self._reason(error)}
        if self.is_struct and not isinstance(value, self.type):
            sentence = f"The value does not have its record's type: pass {self.type.__name__}(…)."
            reason = {}
        return RecordError(sentence, record=self.name, found=type(value).__name__, **reason)


def replaced(value: T, changes: dict[str, Any]) -> T:
    assert isinstance(value, msgspec.Struct)
    try:
        return msgspec.structs.replace(value, **changes)
    except (ValueError, TypeError) as error:  # the type's own __post_init__
        raise RecordError("The value does not have its record's type.", reason=str(error)) from None


def _decoder(type_: type[T]) -> msgspec.json.Decoder[T]:
    try:
        return msgspec.json.Decoder(type_)
    except (TypeError, msgspec.MsgspecError) as error:
        raise DeclarationError(
            "A record has a type that msgspec reads from JSON, such as a Struct.",
            type=type_,
            reason=str(error),
        ) from None


def is_struct(type_: object) -> TypeGuard[type[msgspec.Struct]]:
    return isinstance(type_, type) and issubclass(type_, msgspec.Struct)
