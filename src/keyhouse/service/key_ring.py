"""The key ring of a service: the setting `key_ring` is its file, or its text."""

import os
import stat
from collections.abc import Sequence
from pathlib import Path

from keyhouse.errors import UsageError
from keyhouse.keyring import KeyRing
from keyhouse.schema import Record, Schema

__all__ = ["read_key_ring"]


def read_key_ring(setting: str | None, schemas: Sequence[Schema], *, table: str) -> KeyRing | None:
    """Return the key ring of the setting. Raises UsageError if a schema needs one and there is
    none, or if other users can read its file."""
    if setting is None:
        for record in [record for schema in schemas for record in schema.records]:
            if _needs_keys(record):
                raise UsageError(
                    "The record has sealed members: give the service their key ring, which"
                    " `KeyRing.new().save(FILE)` makes.",
                    record=record.name,
                    setting=f"{table}.key_ring",
                )
        return None
    if setting.lstrip().startswith("{"):
        return KeyRing.parse(setting)
    path = Path(setting)
    try:
        mode = stat.S_IMODE(path.stat().st_mode)
    except OSError:
        mode = 0  # loading it tells why it cannot be read
    if os.name == "posix" and mode & 0o077:
        raise UsageError(
            "Other users can read the key ring: chmod 600 it, and rotate its key if one has.",
            file=setting,
        )
    return KeyRing.load(path)


def _needs_keys(record: Record[object]) -> bool:
    return bool(record.sealed) or any(
        segment.is_hashed for template in record.templates for segment in template.segments
    )
