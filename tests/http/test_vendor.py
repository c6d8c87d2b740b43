"""Vendored files are those of the lock, each with its license."""

import base64
import hashlib
import tomllib
from pathlib import Path

import keyhouse.http

VENDOR = Path(keyhouse.http.__file__).parent / "assets" / "vendor"
LOCK = tomllib.loads((VENDOR / "vendor.lock").read_text())


def test_every_vendored_file_is_locked_and_has_its_license() -> None:
    locked = {entry["file"] for entry in LOCK.values()}
    licenses = {entry["license"].rpartition(" ")[2] for entry in LOCK.values()}
    found = {file.name for file in VENDOR.iterdir()} - {"vendor.lock"}
    assert found == locked | licenses


def test_every_vendored_file_has_the_locked_hash() -> None:
    for entry in LOCK.values():
        digest = hashlib.sha512((VENDOR / entry["file"]).read_bytes()).digest()
        assert base64.b64encode(digest).decode() == entry["sha512"], entry["file"]
