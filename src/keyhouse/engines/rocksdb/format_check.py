"""Whose a folder is, and of which format: asked before RocksDB changes anything in it."""

import os
import re

import msgspec
from rocksdict import AccessType, Options, Rdict

from keyhouse.engines.rocksdb.encoding import FAMILIES, FORMAT, FORMAT_KEY, META
from keyhouse.errors import NewerError, UnreadableError, UsageError

_ROCKSDB = re.compile(
    r"CURRENT|IDENTITY|LOCK|LOG.*|MANIFEST-\d+|OPTIONS-\d+.*|\d+\.(log|sst|blob|dbtmp)|rocksdict-config\.json"
)
"""What RocksDB and its driver leave in a folder, also when they were killed while making it."""


def check_folder(folder: str) -> None:
    """Refuse what another program, or a newer Keyhouse, has written; it is left alone. Errors are the driver's."""
    if not os.path.exists(os.path.join(folder, "CURRENT")):
        foreign = sorted(name for name in os.listdir(folder) if not _ROCKSDB.fullmatch(name))
        if foreign:
            raise UsageError(
                "The folder holds other files; name a new one for the database.",
                folder=folder,
                found=foreign[:5],
            )
        return
    families = Rdict.list_cf(folder)
    if set(families) != set(FAMILIES):
        _check_families(folder, families)


def check_format(folder: str, found: bytes | None) -> bool:
    """Whether the database is a new one; refused when it is newer than this code."""
    if found is None:
        return True
    try:
        version = msgspec.json.decode(found, type=int)
    except msgspec.DecodeError as error:
        raise UnreadableError(
            "The database does not say its format.", folder=folder, found=found
        ) from error
    if version > FORMAT:
        raise NewerError(
            "The database was written by a newer Keyhouse; use that one.",
            folder=folder,
            format=version,
            known=FORMAT,
        )
    return False


def _check_families(folder: str, families: list[str]) -> None:
    """Some are missing, when it was killed while it was made; or there are others."""
    others = {name: Options(raw_mode=True) for name in families if name != "default"}
    database = Rdict(folder, Options(raw_mode=True), others, AccessType.read_only(False))
    handles = {name: database.get_column_family(name) for name in families}
    try:
        if META in handles:
            check_format(folder, handles[META].get(FORMAT_KEY))
        if not set(families) < set(FAMILIES) or any(map(_holds_something, handles.values())):
            raise UsageError(
                "The database belongs to another program; name another folder.", folder=folder
            )
    finally:
        for handle in (*handles.values(), database):
            handle.close()


def _holds_something(family: Rdict) -> bool:
    rows = family.iter()
    rows.seek_to_first()
    return rows.valid()
