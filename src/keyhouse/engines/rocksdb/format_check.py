"""Checks the owner and the format of a folder before RocksDB changes anything in it."""

import os
import re

import msgspec
from rocksdict import AccessType, Options, Rdict

from keyhouse.engines.rocksdb.encoding import FAMILIES, FORMAT, FORMAT_KEY, META
from keyhouse.errors import NewerError, UnreadableError, UsageError

_ROCKSDB = re.compile(
    r"CURRENT|IDENTITY|LOCK|LOG.*|MANIFEST-\d+|OPTIONS-\d+.*|\d+\.(log|sst|blob|dbtmp)"
    r"|rocksdict-config\.json"
)
"""Files of RocksDB and its driver, also of a folder whose creation was killed."""


def check_folder(folder: str) -> None:
    """Raise if another program or a newer Keyhouse wrote the folder, or the driver's error."""
    if not os.path.exists(os.path.join(folder, "CURRENT")):
        foreign = sorted(name for name in os.listdir(folder) if not _ROCKSDB.fullmatch(name))
        if foreign:
            raise UsageError(
                "The folder contains other files; name a new one for the database.",
                folder=folder,
                found=foreign[:5],
            )
        return
    families = Rdict.list_cf(folder)
    if set(families) != set(FAMILIES):
        _check_families(folder, families)


def check_format(folder: str, stored: bytes | None) -> bool:
    """Return True for a new database; raise if its format is newer than this code."""
    if stored is None:
        return True
    try:
        version = msgspec.json.decode(stored, type=int)
    except msgspec.DecodeError as error:
        raise UnreadableError(
            "The format of the database is unreadable.", folder=folder, found=stored
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
    """Accept missing families, of a creation that was killed; reject unknown ones."""
    others = {name: Options(raw_mode=True) for name in families if name != "default"}
    database = Rdict(folder, Options(raw_mode=True), others, AccessType.read_only(False))
    handles = {name: database.get_column_family(name) for name in families}
    try:
        if META in handles:
            check_format(folder, handles[META].get(FORMAT_KEY))
        if not set(families) < set(FAMILIES) or any(map(_has_rows, handles.values())):
            raise UsageError(
                "The database belongs to another program; name another folder.", folder=folder
            )
    finally:
        for handle in (*handles.values(), database):
            handle.close()


def _has_rows(family: Rdict) -> bool:
    rows = family.iter()
    rows.seek_to_first()
    return rows.valid()
