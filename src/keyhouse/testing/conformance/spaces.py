"""Spaces are isolated, whatever their names."""

from keyhouse.engine import Span
from keyhouse.testing.conformance.harness import ALL, Harness, scenario

HOSTILE = (
    *(
        "a",
        "A",
        "a b",
        "a'b",
        'a"b',
        "a;b",
        "a/b",
        "a\\b",
        "a:b",
        "a.b",
        "a*",
        "a>",
        "a%",
        "a_",
        "..",
        "../a",
        "a\n",
    ),
    *(
        "%2e%2e",
        "rows",
        "é",
        "e\u0301",
        "\u202ea",
        "a\u200b",
        "\ud7ff",
        "\ue000",
        "\U00010000",
        "x" * 255,
    ),
)


class SpaceTests:
    @scenario()
    async def test_an_empty_store_has_no_spaces(self, harness: Harness) -> None:
        assert await _names(harness) == []

    @scenario()
    async def test_spaces_with_rows_are_listed_in_order(self, harness: Harness) -> None:
        for space in reversed(HOSTILE):
            await harness.put("k", "l", space=space)
        assert await _names(harness) == sorted(HOSTILE, key=str.encode)

    @scenario()
    async def test_a_space_without_live_rows_is_not_listed(self, harness: Harness) -> None:
        for space in ("deleted", "expired", "live", "swept"):
            await harness.put(
                "k",
                space=space,
                expires=harness.later(10) if space in ("expired", "swept") else None,
            )
        await harness.commit(space="deleted", deletes=("k",))
        harness.clock.advance(milliseconds=10)
        assert await _names(harness) == ["live"]
        await harness.engine.sweep(limit=10)
        assert await _names(harness) == ["live"]

    @scenario()
    async def test_the_same_key_in_two_spaces_is_two_rows(self, harness: Harness) -> None:
        for number, space in enumerate(HOSTILE):
            await harness.put("k", value=b"%d" % number, space=space)
        for number, space in enumerate(HOSTILE):
            assert await harness.value("k", space=space) == b"%d" % number
        await harness.commit(space="a", deletes=("k",))
        assert [space for space in HOSTILE if await harness.value("k", space=space) is None] == [
            "a"
        ]

    @scenario()
    async def test_no_span_reaches_another_space(self, harness: Harness) -> None:
        for space in HOSTILE:
            await harness.put(f"key of {space}", space=space)
        for space in HOSTILE:
            for span in (ALL, Span(""), Span("", "\U0010ffff"), Span.prefix("key")):
                assert await harness.keys(span, space=space) == [f"key of {space}"]
                assert await harness.keys(span, space=space, reverse=True) == [f"key of {space}"]

    @scenario()
    async def test_no_key_reaches_another_space(self, harness: Harness) -> None:
        await harness.put("secret", space="b")
        for separator in (":", "/", "|", ".", "\x1f", "' OR ''='", '"."', "\x01"):
            for key in (
                f"b{separator}secret",
                f"..{separator}b{separator}secret",
                f"{separator}b{separator}secret",
            ):
                assert await harness.row(key, space="a") is None
                await harness.commit(space="a", deletes=(key,))
                await harness.put(key, value=b'"overwritten"', space="a")
        assert await harness.value("secret", space="b") == b"1"
        assert await harness.keys(space="b") == ["secret"]

    @scenario()
    async def test_checks_and_counters_belong_to_their_space(self, harness: Harness) -> None:
        revision = await harness.put("k", value=b"7", space="a")
        assert await harness.commit(space="b", checks={"k": revision}, puts={"x": b"1"}) is None
        assert await harness.commit(space="b", checks={"k": None}, adds={"k": 1}) is not None
        assert await harness.value("k", space="a") == b"7"
        assert await harness.value("k", space="b") == b"1"

    @scenario()
    async def test_a_watch_shows_only_its_space(self, harness: Harness) -> None:
        start = await harness.put("k", space="a")
        for space in HOSTILE:
            await harness.put(f"key of {space}", space=space)
        assert [change.key for change in await harness.changes(since=start, space="a")] == [
            "key of a"
        ]


async def _names(harness: Harness) -> list[str]:
    return [space async for space in harness.engine.spaces()]
