"""Text that is cut in a key: `{title:norm900}`."""

import hashlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from keyhouse.errors import DeclarationError
from keyhouse.keys import CutText, Template, normal

CUT = Template("t:{title:norm80}:{id}")
texts = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=400)
titles = texts.filter(lambda text: bool(normal(text)))


@given(titles)
def test_a_key_holds_at_most_its_bytes_and_parses_to_itself(title: str) -> None:
    key = CUT.build({"title": title, "id": "1"})
    assert len(key.encode()) <= len("t:") + 80 + len(":1")
    values = CUT.parse(key)
    assert values is not None and CUT.build(values) == key


@given(titles, titles)
def test_other_titles_have_other_keys(one: str, other: str) -> None:
    keys = [CUT.build({"title": title, "id": "1"}) for title in (one, other)]
    assert (keys[0] == keys[1]) == (normal(one) == normal(other))


@given(titles, st.integers(0, 400))
def test_a_prefix_finds_every_title_that_starts_with_it(title: str, size: int) -> None:
    prefix = normal(title)[:size]
    text, _ = CUT.segments[0].format_prefix(prefix)
    assert CUT.build({"title": title, "id": "1"}).startswith(f"t:{text}")


def test_a_short_title_is_written_as_before() -> None:
    for title in ("The MOON", "a:b%", "月" * 26, "x" * 80):
        plain = Template("t:{title:norm}:{id}").build({"title": title, "id": "1"})
        assert CUT.build({"title": title, "id": "1"}) == plain


def test_a_long_title_ends_with_its_digest() -> None:
    title = "月" * 27
    digest = hashlib.sha256(title.encode()).hexdigest()[:32]
    assert CUT.build({"title": title, "id": "1"}) == f"t:{'月' * 15}~{digest}:1"


def test_text_is_not_cut_to_so_few_bytes() -> None:
    with pytest.raises(DeclarationError, match="cut to so few bytes"):
        CutText(66)
