"""Marathons: laws of the order, patterns, and the routes."""

import asyncio
from collections import Counter
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from keyhouse_playlist.errors import PatternError
from keyhouse_playlist.playlists.mixing import Source, build_marathon, is_episode, parse_pattern
from keyhouse_playlist.schema import BLESSED
from systems.playlist.tests.support.service import PlaylistService, playlist_service


class Item(msgspec.Struct, frozen=True):
    name: str
    title: str | None


titles = st.sampled_from(["Film", "Show S01E01", "show.s01.e04", "Show 1x04", None])
lengths = st.lists(st.lists(titles, max_size=8), min_size=1, max_size=5)
seeds = st.text(max_size=8)


def sources_of(lists: list[list[str | None]]) -> list[Source[Item]]:
    return [
        Source([Item(f"{number}.{at}", title) for at, title in enumerate(each)])
        for number, each in enumerate(lists)
    ]


def all_of(sources: list[Source[Item]]) -> list[Item]:
    return [each for source in sources for each in source.items]


@given(lengths, st.sampled_from(["concatenate", "shuffle", "interleave"]), seeds, st.booleans())
def test_every_item_is_there_exactly_once(
    lists: list[list[str | None]], method: Any, seed: str, preserve: bool
) -> None:
    sources = sources_of(lists)
    made = build_marathon(sources, method, seed=seed, preserve_episode_order=preserve)
    assert Counter(made.items) == Counter(all_of(sources))


@given(lengths, seeds)
def test_a_shuffle_keeps_the_episodes_of_a_source_in_order(
    lists: list[list[str | None]], seed: str
) -> None:
    sources = sources_of(lists)
    made = build_marathon(sources, "shuffle", seed=seed)
    for source in sources:
        own = set(source.items)
        shuffled = [each for each in made.items if each in own and is_episode(each.title)]
        assert shuffled == [each for each in source.items if is_episode(each.title)]
    assert build_marathon(sources, "shuffle", seed=seed) == made


@given(lengths, st.data())
def test_interleaving_honours_the_pattern_keeps_the_order_and_ends(
    lists: list[list[str | None]], data: Any
) -> None:
    sources = sources_of(lists)
    labels = "ABCDE"[: len(sources)]
    tokens = data.draw(
        st.lists(st.tuples(st.sampled_from(labels), st.integers(1, 3)), min_size=1, max_size=5)
    )
    pattern = " ".join(f"{label}{count}" for label, count in tokens)
    made = build_marathon(sources, "interleave", pattern=pattern)
    assert Counter(made.items) == Counter(all_of(sources))
    for source in sources:
        own = set(source.items)
        assert [each for each in made.items if each in own] == list(source.items)
    used = {label for label, _ in tokens}
    first: list[Item] = []
    taken = Counter[str]()
    for label, count in tokens:
        items = sources[labels.index(label)].items
        first += items[taken[label] : taken[label] + count]
        taken[label] += count
    assert made.items[: len(first)] == first
    omitted = [
        label
        for label, source in zip(labels, sources, strict=True)
        if label not in used and source.items
    ]
    assert sum("omits" in warning for warning in made.warnings) == len(omitted)


@pytest.mark.parametrize(
    ("text", "tokens"),
    [
        ("A2B", [("A", 2), ("B", 1)]),
        ("a2,b-c|A", [("A", 2), ("B", 1), ("C", 1), ("A", 1)]),
        ("  A  ", [("A", 1)]),
        ("AB10", [("A", 1), ("B", 10)]),
    ],
)
def test_patterns(text: str, tokens: list[tuple[str, int]]) -> None:
    assert parse_pattern(text) == tokens


@pytest.mark.parametrize("text", ["", "  ", "A0", "2A", "A;B", "A1001", "Ä", "A²", "A" * 201])
def test_invalid_patterns_are_rejected(text: str) -> None:
    with pytest.raises(PatternError):
        parse_pattern(text)


@given(st.text(max_size=40))
def test_any_text_is_a_pattern_or_an_error(text: str) -> None:
    try:
        tokens = parse_pattern(text)
    except PatternError:
        return
    assert tokens and all(len(label) == 1 and count >= 1 for label, count in tokens)


def test_sources_have_labels_from_a_to_z() -> None:
    one = Source([Item("x", "X")])
    for sources in (
        [],
        [one] * 27,
        [Source(one.items, "AB")],
        [Source(one.items, "A"), Source(one.items, "a")],
        [Source(one.items, "B"), one],
    ):
        with pytest.raises(PatternError):
            build_marathon(sources, "concatenate")
    with pytest.raises(PatternError):
        build_marathon([one], "interleave", pattern="B")
    assert len(build_marathon([one] * 26, "interleave").items) == 26


def test_marathons_are_previewed_and_saved_over_http(tmp_path: Path) -> None:
    async def work(service: PlaylistService) -> None:
        await service.stores.acl.put(BLESSED, ["Bob"])
        bob = await service.member("Bob")

        async def saved(name: str, *ids: str) -> str:
            items = [{"video_id": id, "title": id} for id in ids]
            made = await bob.post("/playlists", {"name": name, "items": items}, 201)
            return str(made["playlist_id"])

        sources = [
            {"playlist_id": await saved("A", "a1", "a2", "a3")},
            {"playlist_id": await saved("B", "b1", "b2"), "label": "B"},
        ]
        body = {"sources": sources, "method": "interleave", "interleave_pattern": "A2b"}
        for path in ("/marathons/preview", "/marathon/generate"):
            shown = await bob.post(path, body)
            ids = [each["video_id"] for each in shown["items"]]
            assert ids == ["a1", "a2", "b1", "a3", "b2"] and shown["warnings"] == []
            assert set(shown["items"][0]) == {"video_id", "title"}
        made = await bob.post("/marathons", {"name": "Both", **body}, 201)
        stored = await bob.get(f"/playlists/{made['playlist_id']}")
        assert [each["video_id"] for each in stored["items"]] == ["a1", "a2", "b1", "a3", "b2"]
        taken = await bob("POST", "/marathons", {"name": "BOTH", **body})
        assert taken.status_code == 409
        items = [{"video_id": "a1"}]
        await bob.post("/marathon/save", {"name": "Saved", "items": items}, 201)
        for seed in (7, "seven", 1.5):
            shuffled = {"sources": sources, "method": "shuffle", "shuffle_seed": seed}
            first = await bob.post("/marathons/preview", shuffled)
            assert await bob.post("/marathons/preview", shuffled) == first
        wrong = [
            {**body, "interleave_pattern": ""},
            {**body, "interleave_pattern": "C"},
            {**body, "interleave_pattern": "A0"},
            {**body, "sources": []},
            {**body, "sources": sources * 14},
        ]
        for each in wrong:
            response = await bob("POST", "/marathons/preview", each)
            assert response.status_code == 400, each
            assert response.json()["error"]["code"] == "invalid_pattern"
        missing = {**body, "sources": [{"playlist_id": "nobody"}]}
        assert (await bob("POST", "/marathons/preview", missing)).status_code == 404

    async def main() -> None:
        async with playlist_service(tmp_path) as service:
            await work(service)

    asyncio.run(main())
