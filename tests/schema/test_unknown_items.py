"""Unknown members of list items: each stays with the item that has it, in whatever order the items
are written."""

from datetime import datetime
from typing import Any, NamedTuple

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import inspect

from keyhouse.errors import RecordError
from keyhouse.schema import Record
from keyhouse.schema.unknown_members import KnownMembers, known_members


class Tag(msgspec.Struct, frozen=True):
    name: str
    weight: float = 1.0


class Song(msgspec.Struct, frozen=True):
    title: str
    tags: frozenset[Tag] = frozenset()
    at: datetime | None = None


class Album(msgspec.Struct):
    id: str
    songs: list[Song] = []
    hidden: frozenset[Song] = frozenset()
    rows: list[list[Song]] = []


class Sorted(msgspec.Struct):
    id: str
    songs: list[Song]

    def __post_init__(self) -> None:
        self.songs = sorted(self.songs, key=lambda song: song.title)


ALBUM = Record(Album, "album/{id}", name="album", unknown="keep")
SORTED = Record(Sorted, "sorted/{id}", name="sorted", unknown="keep")

Songs = list[dict[str, Any]]


def songs() -> st.SearchStrategy[Songs]:
    """Few titles, so that several songs have the same one; some have an unknown member."""
    song = st.fixed_dictionaries(
        {"title": st.sampled_from("abc")}, optional={"stars": st.integers(1, 5)}
    )
    return st.lists(song, max_size=6)


def known_of(type: Any) -> KnownMembers:
    found = known_members(inspect.type_info(type))
    assert found is not None
    return found


def stars(items: Songs, title: str) -> list[int | None]:
    return [song.get("stars") for song in items if song["title"] == title]


def without_stars(items: Songs) -> Songs:
    return [{name: part for name, part in song.items() if name != "stars"} for song in items]


@given(songs(), st.data())
def test_every_order_gives_each_item_its_own_members(document: Songs, data: st.DataObject) -> None:
    written = {"songs": data.draw(st.permutations(without_stars(document)))}
    known_of(Album).keep({"songs": document}, written)
    for title in "abc":
        assert stars(written["songs"], title) == stars(document, title), "equal items keep order"


@given(songs())
def test_a_sorted_list_has_the_members_of_its_items(document: Songs) -> None:
    value, plain = SORTED.json.parse_document(msgspec.json.encode({"id": "a", "songs": document}))
    stored = msgspec.json.decode(SORTED.json.keep_from_document(SORTED.json.encode(value), plain))[
        "songs"
    ]
    assert [song["title"] for song in stored] == sorted(song["title"] for song in document)
    for title in "abc":
        assert stars(stored, title) == stars(document, title)


@given(st.dictionaries(st.text("abcdefgh", min_size=1), st.integers()))
def test_an_item_of_a_set_has_its_own_members(found: dict[str, int]) -> None:
    """The items of a set are stored in another order than those of the document."""
    items = [{"title": title, "stars": count} for title, count in found.items()]
    text = msgspec.json.encode({"id": "a", "hidden": items})
    value, plain = ALBUM.json.parse_document(text)
    stored = msgspec.json.decode(ALBUM.json.keep_from_document(ALBUM.json.encode(value), plain))
    assert {song["title"]: song["stars"] for song in stored["hidden"]} == found


@given(songs(), st.data())
def test_fewer_items_lose_no_members_that_one_of_them_could_have(
    document: Songs, data: st.DataObject
) -> None:
    count = data.draw(st.integers(0, len(document)))
    written = {"songs": data.draw(st.permutations(without_stars(document)))[:count]}
    known_of(Album).keep({"songs": document}, written)
    for title in "abc":
        before = [each for each in stars(document, title) if each is not None]
        after = stars(written["songs"], title)
        kept = [each for each in after if each is not None]
        assert kept == before[: len(kept)] and len(kept) == min(len(after), len(before))


def test_items_are_the_same_if_they_decode_as_equal_values() -> None:
    """Sets in another order, a default that is left out, and a time in another zone."""
    tags = [{"name": name} for name in "abcdef"]
    song = {"title": "a", "tags": tags, "at": "2026-01-18T13:00:00+01:00", "stars": 3}
    text = msgspec.json.encode({"id": "a", "songs": [{"title": "b", "stars": 1}, song]})
    value, plain = ALBUM.json.parse_document(text)
    value.songs.reverse()
    stored = msgspec.json.decode(ALBUM.json.keep_from_document(ALBUM.json.encode(value), plain))[
        "songs"
    ]
    assert [(each["title"], each["stars"]) for each in stored] == [("a", 3), ("b", 1)]


def test_a_list_in_a_list_is_found_by_its_items() -> None:
    rows = [[{"title": "a", "stars": 1}, {"title": "b"}], [{"title": "b", "stars": 2}]]
    written = {"rows": [[{"title": "b"}], [{"title": "a"}, {"title": "b"}]]}
    known_of(Album).keep({"rows": rows}, written)
    assert written["rows"] == rows[::-1]


def test_an_item_that_has_unknown_members_gets_no_others() -> None:
    """Two items of one value were exchanged: neither gets the members of the other one."""
    stored: Songs = [{"title": "a", "stars": 1}, {"title": "a", "mood": "x"}]
    written = {"songs": [dict(each) for each in reversed(stored)]}
    known_of(Album).keep({"songs": stored}, written)
    assert written["songs"] == stored[::-1]
    some = {"songs": [{"title": "a", "mood": "x"}, {"title": "a"}]}
    known_of(Album).keep({"songs": stored}, some)
    assert some["songs"] == stored[::-1]


class Pair(NamedTuple):
    song: Song
    plays: int = 0


class Row(msgspec.Struct, array_like=True, tag="row"):
    song: Song
    below: "Row | None" = None


class Other(msgspec.Struct, array_like=True, tag="other"):
    tag: Tag


class Places(msgspec.Struct):
    id: str
    both: tuple[Song, int, Tag] | None = None
    many: tuple[Song, ...] = ()
    pair: Pair | None = None
    row: Row | Other | None = None
    tag: Tag | None = None


SONG: dict[str, Any] = {"title": "a", "tags": [], "at": None, "stars": 1}
TAG: dict[str, Any] = {"name": "t", "weight": 1.0, "stars": 2}
PLACES: dict[str, tuple[Any, str]] = {
    "both": ([SONG, 1, TAG], "both[0].stars"),
    "many": ([SONG, SONG], "many[0].stars"),
    "pair": ([SONG, 1], "pair[0].stars"),
    "row": (["row", SONG, ["row", SONG, None]], "row[1].stars"),
    "tag": (TAG, "tag.stars"),
}


@pytest.mark.parametrize("name", PLACES)
def test_members_inside_of_a_tuple_are_known_by_their_place(name: str) -> None:
    """They were accepted by the strict check, and dropped, also by records that keep them."""
    part, path = PLACES[name]
    document = {"id": "a", name: part}
    with pytest.raises(RecordError) as error:
        Record(Places, "p/{id}", name="p").json.strictly_accepted(document)
    assert error.value.fields["member"] == path
    keeping = Record(Places, "p/{id}", name="p", unknown="keep")
    value, plain = keeping.json.parse_document(msgspec.json.encode(document))
    row = keeping.json.keep_from_document(keeping.json.encode(value), plain)
    assert msgspec.json.decode(row)[name] == part
    assert keeping.shown(value, row)[name] == (
        tuple(part) if name in ("both", "many", "pair") else part
    )
    _, patched = keeping.json.patched(value, {}, row)
    assert msgspec.json.decode(msgspec.json.encode(patched))[name] == part


def test_a_tagged_array_is_one_of_several() -> None:
    known = known_of(Places)
    assert known.first_unknown({"row": ["other", TAG]}) == "row[1].stars"
    assert known.first_unknown({"row": ["none", TAG]}) is None
    assert known.first_unknown({"row": []}) is None


class Cat(msgspec.Struct, tag="cat"):
    name: str


class Home(msgspec.Struct):
    id: str
    cat: Cat | None = None


def test_a_tag_that_is_left_out_hides_no_unknown_member() -> None:
    assert known_of(Home).first_unknown({"cat": {"name": "a", "age": 1}}) == "cat.age"
