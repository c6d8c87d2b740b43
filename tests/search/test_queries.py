"""Folding, words, queries and snippets; searches against a naive one, in many scripts."""

import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from keyhouse.errors import LimitError
from keyhouse.search import fold, match_expression, parse_query, snippet, words
from keyhouse.search.file import Document, SearchFile
from keyhouse.search.limits import SEARCH_QUERY_CHARS_MAX
from tests.search.support.library import Volume, naive
from tests.sizes import size

TITLES = (
    "The Lord of the Rings",
    "Les Misérables",
    "Straße nach Süden",
    "Ångström’s Østersøen, Łódź",
    "AC/DC: Don't stop",
    "Война и мир",
    "Ёжик в тумане",
    "Ὀδύσσεια",
    "אַהֲבָה וחושך",
    "كِتَابُ ألف ليلة",
    "हिन्दी की किताब",
    "நூல் நிலையம்",
    "ภาษาไทยง่าย",
    "東京物語 第二部",
    "がんばれカメラ",
    "한국어 사전",
    "Ｆｕｌｌ ｗｉｄｔｈ",
    "1984 ½ x²",
    "🎵 music 🎵",
    "soft\xadhyphen zero\u200dwidth",
    "Tiếng Việt",
    "İstanbul ılık",
    "%_\"'*()^:-",
)

TEXT = st.one_of(
    st.sampled_from(TITLES),
    st.text(max_size=20),
    st.text(alphabet="ab é東京がคำर् \"*'-:()", max_size=12),
    st.lists(st.sampled_from(" ".join(TITLES).split()), max_size=4).map(" ".join),
)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("CAFÉ", "cafe"),
        ("Straße", "STRASSE"),
        ("Ｆｕｌｌ", "full"),
        ("Łódź", "lodz"),
        ("Østersøen", "ostersoen"),
        ("Ёжик", "ежик"),
        ("Ὀδύσσεια", "οδυσσεια"),
        ("אַהֲבָה", "אהבה"),
        ("كِتَابُ", "كتاب"),
        ("İstanbul", "istanbul"),
        ("Tiếng Việt", "tieng viet"),
        ("soft\xadhyphen", "softhyphen"),
        ("ﬁn", "fin"),
    ],
)
def test_case_forms_and_diacritics_are_folded(one: str, other: str) -> None:
    assert words(one) == words(other)


@pytest.mark.parametrize(
    ("one", "other"), [("か", "が"), ("कि", "कु"), ("हिन्दी", "हिनदी"), ("cat", "cut"), ("ปา", "ป่า")]
)
def test_marks_that_make_another_letter_are_kept(one: str, other: str) -> None:
    assert words(one) != words(other)


def test_text_is_split_into_words() -> None:
    assert words("AC/DC: Don't") == ["ac", "dc", "don", "t"]
    assert words("東京 Tokyo2") == ["東", "京", "tokyo2"]
    assert words("snake_case 🎵 %") == ["snake", "case"]
    assert words("") == []


@given(st.text(max_size=50))
def test_folding_twice_changes_nothing(text: str) -> None:
    assert fold(fold(text)) == fold(text)


@given(st.text(max_size=50))
def test_words_have_no_character_that_fts5_splits_at(text: str) -> None:
    for word in words(text):
        assert word and all(not each.isascii() or each.isalnum() for each in word)
        assert words(word) == [word]


def test_the_expression_of_a_query() -> None:
    assert match_expression(parse_query("The AC/DC lor")) == '"the" AND "ac dc" AND "lor" *'
    assert match_expression(parse_query("a a b"), prefix=False) == '"a" AND "b"'
    assert match_expression(parse_query("x"), columns=["text_title"]) == '{text_title} : ("x" *)'
    assert parse_query("%_\"'*()^:- 🎵") == []
    with pytest.raises(LimitError, match="too long"):
        parse_query("x" * (SEARCH_QUERY_CHARS_MAX + 1))


# Against the naive search


def file_of(volumes: list[Volume], folder: Path) -> SearchFile:
    file = SearchFile.create(folder / "search.db", ["title", "tags", "about"], "test")
    file.apply(
        Document(
            volume.id,
            1,
            0,
            {"title": volume.title, "tags": volume.tags, "about": volume.about},
        )
        for volume in volumes
    )
    return file


def searched(file: SearchFile, query: str, *, prefix: bool = True) -> list[str]:
    if not (terms := parse_query(query)):
        return []
    hits, total = file.search(
        match_expression(terms, prefix=prefix),
        [1.0, 1.0, 1.0],
        now=0,
        sources=(),
        filters=(),
        limit=1_000,
        offset=0,
        count=True,
    )
    assert total == len(hits)
    return sorted(key for _, key, _ in hits)


@settings(max_examples=size(150, 150, 3_000))
@given(
    st.lists(st.tuples(TEXT, st.lists(TEXT, max_size=3), TEXT), max_size=6),
    st.lists(TEXT, max_size=4),
    st.booleans(),
)
def test_a_search_finds_what_a_naive_search_finds(
    texts: list[tuple[str, list[str], str]], queries: list[str], prefix: bool
) -> None:
    volumes = [
        Volume(id=str(number), title=title, tags=tags, about=about)
        for number, (title, tags, about) in enumerate(texts)
    ]
    with tempfile.TemporaryDirectory() as folder:
        file = file_of(volumes, Path(folder))
        for query in [*queries, *(title for title, _, _ in texts)]:
            assert searched(file, query, prefix=prefix) == naive(volumes, query, prefix=prefix)
        file.close()


def test_every_title_is_found_by_its_words_and_by_the_start_of_the_last(tmp_path: Path) -> None:
    volumes = [Volume(id=str(number), title=title) for number, title in enumerate(TITLES)]
    file = file_of(volumes, tmp_path)
    for volume in volumes:
        for query in (volume.title, volume.title.upper(), volume.title[: len(volume.title) // 2]):
            if words(query):
                assert volume.id in searched(file, query), query
    assert searched(file, "京物") == [str(TITLES.index("東京物語 第二部"))]
    assert searched(file, "ไทย") == [str(TITLES.index("ภาษาไทยง่าย"))]
    assert searched(file, '"rings" OR NOT lord*') == []  # operators are words
    file.close()


def test_a_phrase_does_not_reach_from_one_text_into_the_next(tmp_path: Path) -> None:
    volume = Volume(id="1", title="x", tags=["science", "fiction"])
    file = file_of([volume], tmp_path)
    assert searched(file, "science-fiction") == naive([volume], "science-fiction") == []
    assert searched(file, "science fiction") == ["1"]
    file.close()


def test_the_longest_query_is_answered(tmp_path: Path) -> None:
    file = file_of([Volume(id="1", title="東" * 2_000)], tmp_path)
    assert searched(file, "東" * SEARCH_QUERY_CHARS_MAX) == ["1"]
    distinct = " ".join(chr(0x4E00 + number) for number in range(SEARCH_QUERY_CHARS_MAX // 2))
    assert searched(file, distinct) == []
    file.close()


# Snippets


def test_a_snippet_shows_the_first_match() -> None:
    text = "word " * 100 + "The Café by the sea " + "word " * 100
    parts = snippet(text, "cafe se", chars_max=60)
    assert [part.text for part in parts if part.is_match] == ["Café", "sea"]
    shown = "".join(part.text for part in parts)
    assert shown.startswith("…") and shown.endswith("…") and len(shown) <= 62
    assert snippet("東京物語", "京物") == [("東", False), ("京物", True), ("語", False)]
    assert snippet("no match", "x") == [("no match", False)]
    assert snippet("", "x") == []


@given(TEXT, TEXT)
def test_the_parts_of_a_short_snippet_are_the_text(text: str, query: str) -> None:
    assert "".join(part.text for part in snippet(text, query, chars_max=10_000)) == text
