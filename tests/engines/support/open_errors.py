"""What an engine says when it is not opened."""

import asyncio

import pytest

from keyhouse import open_engine
from keyhouse.errors import KeyhouseError

SECRET = "sEcr3t"
"""A password, for the URLs of tests."""


def refusal(url: str, *, create: bool = True) -> KeyhouseError:
    """The error, in which the secret is nowhere."""
    with pytest.raises(KeyhouseError) as raised:
        asyncio.run(asyncio.wait_for(open_engine(url, create=create), 60))
    error = raised.value
    assert SECRET not in str(error) and SECRET not in repr(error.fields)
    return error
