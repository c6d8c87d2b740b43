"""Errors of engines that fail to open."""

import asyncio

import pytest

from keyhouse import open_engine
from keyhouse.errors import KeyhouseError

SECRET = "sEcr3t"
"""The password in URLs of tests."""


def open_error(url: str, *, create: bool = True) -> KeyhouseError:
    """Return the error of opening `url`, checked not to contain the secret."""
    with pytest.raises(KeyhouseError) as raised:
        asyncio.run(asyncio.wait_for(open_engine(url, create=create), 60))
    error = raised.value
    assert SECRET not in str(error) and SECRET not in repr(error.fields)
    return error
