"""Texts like JSON, and what the tests of its checks share."""

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
from hypothesis import strategies as st

from keyhouse.errors import DocumentError, LimitError
from keyhouse.schema import json_guard

STRINGS = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"?', re.DOTALL)

strings = st.lists(st.sampled_from(["a", "1", "7" * 8, "[", "}", ",", '\\"', "\\\\", "\\n"])).map(
    lambda parts: '"' + "".join(parts) + '"'
)
between = st.sampled_from([*"[]{},:1- ", "[[[[", "]]]]", "[]", "7" * 8, "123456", "1234567"])
texts = st.builds(
    lambda parts, end: ("".join(parts) + end).encode(),
    st.lists(strings | between, max_size=60),
    st.sampled_from(["", '"', '"[[[[', '"\\', '"7777777']),
)
"""Strings and the text between them; the last string may be unterminated."""


def refuses(check: Callable[[], object]) -> bool:
    try:
        check()
    except (DocumentError, LimitError):
        return True
    return False


@contextmanager
def small(*, window: int = 65_536, digits: int = 4_000) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(json_guard, "WINDOW_BYTES", window)
        patch.setattr(json_guard, "INTEGER_DIGITS_MAX", digits)
        yield
