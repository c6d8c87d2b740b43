"""Escaping is one to one, stays in its alphabet, and never leaves the delimiter in the text."""

import re
import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from keyhouse.keys import NATS, NATS_KEY, PLAIN, Escape
from tests.keys import strategies as keys

ESCAPES = {
    "plain": PLAIN.and_also(":"),
    "nats": NATS,
    "nats key": NATS_KEY,
    "nats and -": NATS.and_also("-"),
}
NATS_SAYS = re.compile(r"[-/_=.a-zA-Z0-9]+")
"""Characters that a NATS server accepts in a key, apart from the rules about dots."""

escapes = pytest.mark.parametrize("escape", ESCAPES.values(), ids=ESCAPES)


@escapes
@given(text=keys.texts)
def test_escaped_text_unescapes(escape: Escape, text: str) -> None:
    assert escape.unescape(escape.escape(text)) == text


def test_each_of_several_delimiters_is_escaped() -> None:
    escape = PLAIN.and_also(":/")
    assert [escape.escape(text) for text in ("a:b", "a/b", ":/")] == ["a%3Ab", "a%2Fb", "%3A%2F"]


@escapes
@given(pair=st.tuples(keys.texts, keys.texts))
def test_two_texts_never_have_one_escaped_form(escape: Escape, pair: tuple[str, str]) -> None:
    one, other = pair
    assert (escape.escape(one) == escape.escape(other)) == (one == other)


@escapes
@given(text=st.text(string.hexdigits + "%=.-/ax"), data=st.data())
def test_text_that_unescapes_has_one_escaped_form(
    escape: Escape, text: str, data: st.DataObject
) -> None:
    plain = escape.unescape(text)
    if plain is not None:
        assert escape.escape(plain) == text


@pytest.mark.parametrize("escape", [NATS, NATS_KEY, NATS.and_also("-")])
@given(text=keys.plain_texts)
def test_text_escaped_for_nats_is_a_valid_nats_key(escape: Escape, text: str) -> None:
    written = escape.escape(text)
    assert NATS_SAYS.fullmatch(written)
    assert not written.startswith(".") and not written.endswith(".") and ".." not in written


@given(text=keys.texts)
def test_a_field_escaped_for_nats_never_contains_a_slash(text: str) -> None:
    assert "/" not in NATS.escape(text)


@pytest.mark.parametrize(
    ("text", "written"),
    [
        ("a.b", "a.b"),
        ("a..b", "a=2E=2Eb"),
        (".a.", "=2Ea=2E"),
        (".", "=2E"),
        ("a b", "a=20b"),
        ("a=b", "a=3Db"),
        (">", "=3E"),
        ("*", "=2A"),
        ("é", "=C3=A9"),
        ("2001:db8::1", "2001=3Adb8=3A=3A1"),
    ],
)
def test_text_hostile_to_nats_is_escaped_as_documented(text: str, written: str) -> None:
    assert NATS.escape(text) == written


@pytest.mark.parametrize(
    "text", ["%3a", "%zz", "%", "%3", "%41", "%C3", "%C3%28", "%FF", "a:b", "%ED%A0%80", "%25%3"]
)
def test_a_second_spelling_is_rejected(text: str) -> None:
    """Lower case, a needless escape, half a character, a raw delimiter."""
    assert PLAIN.and_also(":").unescape(text) is None


def test_the_plain_alphabet_escapes_its_mark_and_nothing_else() -> None:
    assert PLAIN.escape("100% : é\n") == "100%25 : é\n"
    assert PLAIN.and_also("") is PLAIN
