"""Values as text: coloured JSON keeps every character."""

from time import thread_time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from keyhouse.studio.rendering import PATHS, pretty, tokens


@pytest.mark.parametrize(
    "path", ["/studio/a..b/.c/", "/studio/library/a%2F..%2Fb/", "/studio/library/?q=a/../b"]
)
def test_dots_that_no_browser_resolves_are_part_of_a_path(path: str) -> None:
    assert PATHS.local(path) == path


@given(st.text())
def test_coloured_text_is_the_text(text: str) -> None:
    assert "".join(piece for _, piece in tokens(text)) == text


def test_members_strings_numbers_and_literals_have_separate_classes() -> None:
    text, _ = pretty(b'{"a\\":":"b: 1","n":-1.5e+300,"x":[true,null]}')
    found = [(kind, piece) for kind, piece in tokens(text) if kind]
    assert found == [
        ("member", '"a\\":"'),
        ("string", '"b: 1"'),
        ("member", '"n"'),
        ("number", "-1.5e+300"),
        ("member", '"x"'),
        ("literal", "true"),
        ("literal", "null"),
    ]


def test_a_long_text_is_one_piece() -> None:
    text = '{"a": ' + "1" * 30_000 + "}"
    assert tokens(text) == [("", text)]


@pytest.mark.parametrize(
    "text", ['"' * 19_999, '"' + '\\"' * 9_999, '"' + " " * 19_990, '"\\\n' * 6_000]
)
def test_strings_that_are_not_closed_take_linear_time(text: str) -> None:
    def seconds(given: str) -> float:
        start = thread_time()
        assert "".join(piece for _, piece in tokens(given)) == given
        return thread_time() - start

    assert min(seconds(text) for _ in range(3)) < 0.25, "3.8 s when each quote read to the end"
