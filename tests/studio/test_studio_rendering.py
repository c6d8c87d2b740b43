"""Values as text: coloured JSON and compared lines keep every character."""

from hypothesis import given
from hypothesis import strategies as st

from keyhouse.studio.rendering import marked_lines, pretty, tokens


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
    lines = "\n".join(map(str, range(2_000)))
    assert marked_lines(lines, "") == [(lines, False)]


@given(st.text(), st.text())
def test_compared_lines_are_the_text_and_equal_texts_have_no_mark(text: str, other: str) -> None:
    assert "".join(line for line, _ in marked_lines(text, other)) == text
    assert not any(is_changed for _, is_changed in marked_lines(text, text))


def test_only_lines_that_differ_are_marked() -> None:
    before, after = "{\n 1,\n 2\n}", "{\n 1,\n 3\n}"
    assert [line for line, is_changed in marked_lines(before, after) if is_changed] == [" 2\n"]
    assert [line for line, is_changed in marked_lines(after, before) if is_changed] == [" 3\n"]
