"""Key rings: the secrets of sealed members, and of the fields that feed a key only as an HMAC.

A key ring has several keys by their ids. New values are sealed with the current one; older keys
open what they sealed, until a rotation has sealed it again. `index_key` stays the same for the life
of a store: with another one, indexes by HMAC would have to be rebuilt.

The file of a key ring is JSON, readable by its owner only:

    {"current": "2026-01", "keys": {"2026-01": "<32 bytes in base64>"}, "index_key": "<base64>"}
"""

import base64
import os
import secrets
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import msgspec

from keyhouse.advice.arguments import checked
from keyhouse.advice.install import install_line
from keyhouse.errors import SealedError, UsageError

KEY_BYTES: Final = 32
_NONCE_BYTES: Final = 12


class Sealed(msgspec.Struct, frozen=True):
    """One sealed value: the id of its key, the nonce and the ciphertext, both in base64."""

    key_id: str = msgspec.field(name="k")
    nonce: str = msgspec.field(name="n")
    ciphertext: str = msgspec.field(name="c")


class _File(msgspec.Struct, forbid_unknown_fields=True):
    current: str
    keys: dict[str, str]
    index_key: str


class KeyRing:
    """Keys of 32 bytes by id. `current` is the id of the key that seals."""

    @checked(UsageError)
    def __init__(self, keys: Mapping[str, bytes], *, current: str, index_key: bytes) -> None:
        if current not in keys:
            raise UsageError("The current key is not in the key ring.", current=current)
        for name, key in [*keys.items(), ("index_key", index_key)]:
            if len(key) != KEY_BYTES:
                raise UsageError("A key has 32 bytes.", key=name, bytes=len(key))
        self.keys = dict(keys)
        self.current = current
        self.index_key = index_key
        self._ciphers: dict[str, Any] = {}

    def __repr__(self) -> str:
        return f"KeyRing(current={self.current!r}, keys={sorted(self.keys)})"

    @staticmethod
    def new(key_id: str = "1") -> "KeyRing":
        """Return a key ring of random keys."""
        keys = {key_id: secrets.token_bytes(KEY_BYTES)}
        return KeyRing(keys, current=key_id, index_key=secrets.token_bytes(KEY_BYTES))

    def rotated(self, key_id: str | None = None) -> "KeyRing":
        """Return a key ring with one more random key, which is current. `reseal` then seals what
        older keys have sealed."""
        key_id = key_id or str(len(self.keys) + 1)
        if key_id in self.keys:
            raise UsageError("The key ring already has a key of this id.", key=key_id)
        keys = self.keys | {key_id: secrets.token_bytes(KEY_BYTES)}
        return KeyRing(keys, current=key_id, index_key=self.index_key)

    @staticmethod
    def load(path: Path | str) -> "KeyRing":
        """Read the file of a key ring."""
        try:
            text = Path(path).read_bytes()
        except OSError as error:
            raise UsageError(
                "The key ring cannot be read: check its path, and that this user may read it.",
                path=str(path),
                reason=error.strerror,
            ) from None
        try:
            return KeyRing.parse(text)
        except UsageError as error:
            error.fields["path"] = str(path)
            raise

    @staticmethod
    def parse(text: bytes | str) -> "KeyRing":
        """Read the text of a key ring: that of its file."""
        try:
            file = msgspec.json.decode(text, type=_File)
            keys = {name: base64.b64decode(key, validate=True) for name, key in file.keys.items()}
            index_key = base64.b64decode(file.index_key, validate=True)
        except (ValueError, msgspec.MsgspecError) as error:
            raise UsageError(
                "This is not a key ring: give the file of `KeyRing.save`, or its text.",
                reason=str(error),
            ) from None
        return KeyRing(keys, current=file.current, index_key=index_key)

    def save(self, path: Path | str) -> None:
        """Write the file of a key ring, for its owner only, in place of an older one."""
        text = msgspec.json.encode(
            _File(
                current=self.current,
                keys={name: _base64(key) for name, key in self.keys.items()},
                index_key=_base64(self.index_key),
            )
        )
        path = Path(path)
        draft = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
        descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        draft.replace(path)

    def seal(self, plain: bytes, context: bytes) -> Sealed:
        """Encrypt a value with the current key. It opens only with the same context."""
        nonce = secrets.token_bytes(_NONCE_BYTES)
        ciphertext = self._cipher(self.current).encrypt(nonce, plain, context)
        return Sealed(self.current, _base64(nonce), _base64(ciphertext))

    def unseal(self, sealed: Sealed, context: bytes) -> bytes:
        """Decrypt a value. Raises SealedError if it was changed, or sealed elsewhere."""
        from cryptography.exceptions import InvalidTag

        if sealed.key_id not in self.keys:
            raise SealedError(
                "The key ring has no key of this id: it is needed to open what it sealed.",
                key_id=sealed.key_id,
                known=sorted(self.keys),
            )
        try:
            nonce = base64.b64decode(sealed.nonce, validate=True)
            ciphertext = base64.b64decode(sealed.ciphertext, validate=True)
            plain: bytes = self._cipher(sealed.key_id).decrypt(nonce, ciphertext, context)
            return plain
        except (InvalidTag, ValueError):
            raise SealedError(
                "The sealed value was changed, or comes from another row, or its key is another"
                " one.",
                key_id=sealed.key_id,
            ) from None

    def _cipher(self, key_id: str) -> Any:
        if (cipher := self._ciphers.get(key_id)) is None:
            try:
                from cryptography.hazmat.primitives.ciphers.aead import AESGCM
            except ImportError:
                raise UsageError(
                    f"Sealed members need cryptography: {install_line('sealed')}"
                ) from None
            cipher = self._ciphers[key_id] = AESGCM(self.keys[key_id])
        return cipher


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode()
