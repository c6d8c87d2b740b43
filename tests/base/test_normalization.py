"""Text from outside is normalized in time that grows with its length, and by one module."""

import ast
import itertools
import unicodedata
from pathlib import Path

import pytest

from keyhouse import normal
from keyhouse.errors import KeyFieldError
from keyhouse.limits import COMBINING_MARKS_MAX, NORMALIZED_CHARS_MAX
from keyhouse.normalization import is_mark, normalized, pieces, stream_safe
from keyhouse.search import fold

SOURCE = Path(__file__).parents[2] / "src" / "keyhouse"
ASSIGNED = (range(0xD800), range(0xE000, 0x32000), range(0xE0000, 0xE1000))
"""All assigned characters are in these ranges."""


def test_a_mark_is_whatever_decomposes_into_marks_alone() -> None:
    """U+0F81 has the combining class 0, and 100,000 of them took nine seconds."""
    assert unicodedata.unidata_version < "16", "Are there characters in other planes?"
    for character in map(chr, itertools.chain(*ASSIGNED)):
        decomposed = unicodedata.normalize("NFKD", character)
        is_expected = all(unicodedata.combining(each) for each in decomposed)
        assert is_mark(character) == is_expected, hex(ord(character))
        assert is_expected or not unicodedata.combining(decomposed[0]), hex(ord(character))


@pytest.mark.parametrize("before", [0, 1, 15, 30, 31, 100])
@pytest.mark.parametrize("marks", ["\u0300", "\u0300\u0316", "\u0f81", "\uff9e\u0345"])
def test_a_run_of_marks_is_found_wherever_it_is(before: int, marks: str) -> None:
    for after in ("", "a", "a" * 50):
        longest = "ä" * before + (marks * COMBINING_MARKS_MAX)[:COMBINING_MARKS_MAX] + after
        assert stream_safe(longest) == longest
        longer = longest[: before + 1] + marks[0] + longest[before + 1 :]
        with pytest.raises(ValueError, match="more than 30 combining marks"):
            normalized("NFKC", longer)
        assert len(stream_safe(longer)) == len(longest)
        assert stream_safe(longer).endswith(after)


@pytest.mark.parametrize(
    "text",
    [
        "\u0300" * 31,
        "\u0f81" * 31,
        "\ufdfa" * 100,
        "ä" * (NORMALIZED_CHARS_MAX + 1),
        "a" * (NORMALIZED_CHARS_MAX + 1),
    ],
)
def test_text_that_takes_long_to_normalize_is_rejected(text: str) -> None:
    with pytest.raises(KeyFieldError) as caught:
        normal(text)
    assert len(str(caught.value)) < 200


@pytest.mark.parametrize("text", ["Life of Muhammad ﷺ", "Zalgo" + "\u0300\u0316" * 15, "한국어 각"])
def test_text_of_a_language_is_normalized(text: str) -> None:
    assert normal(normal(text)) == normal(text)


def test_any_text_can_be_folded_and_folding_in_pieces_changes_nothing() -> None:
    for word in ("Straße", "e\u0301té", "क्षत्रिय", "\u1100\u1161\u11a8", "ﷺ", "漢字", "İı"):
        text = f"{word} " * 3_000
        assert len(list(pieces(text, 4_096))) > 1
        assert fold(text) == f"{fold(word)} " * 3_000
    assert fold("a" + "\u0300" * 50_000 + "\u0316" * 50_000) == "a"
    assert fold("漢" * 10_000) == "漢" * 10_000


def test_pieces_are_the_text_and_never_begin_with_a_mark() -> None:
    for text in ("a\u0300" * 500, "abc def " * 100, "ä" * 1_000, "", "a" + "\u0300" * 30):
        found = list(pieces(text, 100))
        assert "".join(found) == text
        assert not any(is_mark(piece[0]) for piece in found[1:])
        assert all(len(piece) <= 100 + COMBINING_MARKS_MAX for piece in found)


def test_no_other_module_normalizes() -> None:
    for path in SOURCE.rglob("*.py"):
        source = path.read_text()
        if "unicodedata" not in source or path == SOURCE / "normalization.py":
            continue
        for node in ast.walk(ast.parse(source)):
            names = (
                [each.name for each in node.names]
                if isinstance(node, ast.ImportFrom) and node.module == "unicodedata"
                else [node.attr]
                if isinstance(node, ast.Attribute) and ast.unparse(node.value) == "unicodedata"
                else []
            )
            assert not {"normalize", "is_normalized"} & set(names), f"{path}: use normalization.py"
