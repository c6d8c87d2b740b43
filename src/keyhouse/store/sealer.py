"""Sealed members: parts of a record that are stored encrypted, each on its own.

    {"id": "…", "email": {"$enc": {"k": "2026-01", "n": "<nonce>", "c": "<ciphertext>"}}}

AES-GCM with the current key of the store's key ring. The space, the key of the row and the member
are authenticated too, so a sealed value does not open in another row, and cannot be swapped with
another member. A member that is null is stored as null.
"""

from typing import Any, Final

import msgspec

from keyhouse.errors import SealedError, UnreadableError, UsageError
from keyhouse.keyring import KeyRing, Sealed

_MARK: Final = "$enc"
_NULL: Final = b"null"
_MEMBERS: Final = msgspec.json.Decoder(dict[str, msgspec.Raw])


class _Wrapper(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    sealed: Sealed = msgspec.field(name=_MARK)


_WRAPPER: Final = msgspec.json.Decoder(_Wrapper)


class Sealer:
    """Seals and opens the members of records of one space. Without a key ring it raises."""

    __slots__ = ("_prefix", "_ring", "_space")

    def __init__(self, ring: KeyRing | None, space: str, prefix: str = "") -> None:
        self._ring = ring
        self._space = space
        self._prefix = prefix

    def seal(self, data: bytes, members: tuple[str, ...], key: str) -> bytes:
        """Return the JSON of a record with these members sealed."""
        if self._ring is None:
            raise UsageError(
                "The record has sealed members: open the store with its key ring.", key=key
            )
        plain: dict[str, Any] = _MEMBERS.decode(data)
        for name in members:
            if name in plain and bytes(plain[name]) != _NULL:
                sealed = self._ring.seal(bytes(plain[name]), self._context(key, name))
                plain[name] = _Wrapper(sealed)
        return msgspec.json.encode(plain)

    def unseal(self, data: bytes, members: tuple[str, ...], key: str) -> bytes:
        """Return the JSON of a record with these members opened.

        A member that is not sealed stays as it is: it was written before the member was declared as
        sealed, and is sealed by the next write.
        """
        try:
            plain = _MEMBERS.decode(data)
        except (msgspec.MsgspecError, UnicodeDecodeError):
            return data  # decoding it as a record raises the error
        for name in members:
            sealed = None if name not in plain else _sealed(plain[name])
            if sealed is None:
                continue
            if self._ring is None:
                raise SealedError(
                    "The record has sealed members: open the store with its key ring.", key=key
                )
            try:
                opened = self._ring.unseal(sealed, self._context(key, name))
            except UnreadableError as error:
                error.fields.update(key=key, member=name)
                raise
            plain[name] = msgspec.Raw(opened)
        return msgspec.json.encode(plain)

    def is_current(self, data: bytes, members: tuple[str, ...]) -> bool:
        """Return whether each of these members is sealed with the current key, or null."""
        assert self._ring is not None
        plain = _MEMBERS.decode(data)
        for name in members:
            if name in plain and bytes(plain[name]) != _NULL:
                sealed = _sealed(plain[name])
                if sealed is None or sealed.key_id != self._ring.current:
                    return False
        return True

    def _context(self, key: str, member: str) -> bytes:
        """Return what is authenticated with a member. A prefix of the schema is left out, so that
        its conversion moves rows as they are."""
        return "\0".join((self._space, key.removeprefix(self._prefix), member)).encode()


def is_sealed(data: bytes, members: tuple[str, ...]) -> bool:
    """Return whether any of these members of a record's JSON is sealed, with whatever key."""
    try:
        plain = _MEMBERS.decode(data)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return False  # reading the record raises the error
    return any(name in plain and _sealed(plain[name]) is not None for name in members)


def _sealed(raw: msgspec.Raw) -> Sealed | None:
    try:
        return _WRAPPER.decode(raw).sealed
    except msgspec.MsgspecError:
        return None
