"""Scans: key order, the ends of a span, pages, and the snapshot of a page."""

import asyncio

from keyhouse.engine import Row, Span
from keyhouse.testing.conformance.harness import ALL, SPACE, Harness, scenario

IN_ORDER = (
    *(
        " ",
        "!",
        "%",
        "*",
        "0",
        "10",
        "9",
        "A",
        "B",
        "Z",
        "_",
        "a",
        "a ",
        "a!",
        "aa",
        "b",
        "~",
        "\x7f",
        "\x80",
        "é",
    ),
    *(
        "\u07ff",
        "\u0800",
        "\ud7ff",
        "\ue000",
        "\ufb01",
        "\uffff",
        "\U00010000",
        "\U0001f600",
        "\U0010ffff",
    ),
)
"""By UTF-8 bytes. In UTF-16, U+10000 comes before U+E000; in a locale, the order differs again."""


class ScanTests:
    @scenario()
    async def test_an_empty_space_returns_an_empty_page(self, harness: Harness) -> None:
        page = await harness.engine.scan(SPACE, ALL, limit=10)
        assert page.rows == []
        assert not page.more

    @scenario()
    async def test_keys_are_ordered_by_their_utf8_bytes(self, harness: Harness) -> None:
        for key in IN_ORDER[::2] + IN_ORDER[1::2]:
            await harness.put(key)
        assert await harness.keys() == list(IN_ORDER) == sorted(IN_ORDER, key=str.encode)

    @scenario()
    async def test_a_reverse_scan_has_the_opposite_order(self, harness: Harness) -> None:
        await harness.put(*IN_ORDER)
        assert await harness.keys(reverse=True) == list(reversed(IN_ORDER))

    @scenario()
    async def test_start_is_included_and_stop_is_excluded(self, harness: Harness) -> None:
        await harness.put("a", "b", "ba", "c", "d")
        assert await harness.keys(Span("b", "c")) == ["b", "ba"]
        assert await harness.keys(Span("b", "c"), reverse=True) == ["ba", "b"]
        assert await harness.keys(Span("b")) == ["b", "ba", "c", "d"]
        assert await harness.keys(Span("", "b")) == ["a"]

    @scenario()
    async def test_a_span_without_keys_between_its_ends_is_empty(self, harness: Harness) -> None:
        await harness.put("a", "b", "c")
        for span in (Span("b", "b"), Span("c", "a"), Span("d"), Span("", "a"), Span("b\0", "c")):
            assert await harness.keys(span) == []
            assert await harness.keys(span, reverse=True) == []

    @scenario()
    async def test_every_span_returns_the_keys_between_its_ends(self, harness: Harness) -> None:
        await harness.put(*IN_ORDER)
        for start in IN_ORDER[::3]:
            for stop in (*IN_ORDER[::4], None):
                span = Span(start, stop)
                assert await harness.keys(span) == [key for key in IN_ORDER if key in span]

    @scenario()
    async def test_a_prefix_is_literal(self, harness: Harness) -> None:
        keys = ("a%b", "a_b", "a*b", "a?b", "a[b", "a\\b", "a.b", "axb", "A%b", "a%", "a")
        await harness.put(*keys)
        for prefix in keys:
            assert await harness.keys(Span.prefix(prefix)) == sorted(
                key for key in keys if key.startswith(prefix)
            )

    @scenario()
    async def test_a_prefix_span_includes_the_highest_code_point(self, harness: Harness) -> None:
        ends = (
            "",
            "\U0010ffff",
            "\U0010ffff\U0010ffff",
            "\ud7ff",
            "\ue000",
            "\uffff",
            "\U00010000",
        )
        keys = [start + end for start in ("p", "q", "\ud7ff", "\U0010ffff") for end in ends]
        await harness.put(*dict.fromkeys(keys))
        for prefix in (
            "",
            "p",
            "q",
            "\ud7ff",
            "\U0010ffff",
            "p\U0010ffff",
            "p\ud7ff",
            "\U0010ffff\U0010ffff",
        ):
            assert await harness.keys(Span.prefix(prefix)) == sorted(
                {key for key in keys if key.startswith(prefix)}
            )

    @scenario()
    async def test_more_is_true_exactly_if_further_rows_exist(self, harness: Harness) -> None:
        await harness.put("a", "b", "c", "x")
        for reverse in (False, True):
            for limit, more in ((1, True), (2, True), (3, False), (4, False)):
                page = await harness.engine.scan(
                    SPACE, Span("a", "d"), limit=limit, reverse=reverse
                )
                assert len(page.rows) == min(limit, 3)
                assert page.more is more

    @scenario()
    async def test_more_ignores_expired_rows(self, harness: Harness) -> None:
        await harness.put("a", "b")
        await harness.put("0", "c", expires=harness.later(10))
        harness.clock.advance(milliseconds=10)
        for reverse in (False, True):
            page = await harness.engine.scan(SPACE, ALL, limit=2, reverse=reverse)
            assert len(page.rows) == 2
            assert not page.more

    @scenario()
    async def test_pages_together_cover_the_whole_span(self, harness: Harness) -> None:
        await harness.put(*IN_ORDER)
        for limit in (1, 2, 7, len(IN_ORDER)):
            assert await _walked(harness, limit, reverse=False) == list(IN_ORDER)
            assert await _walked(harness, limit, reverse=True) == list(reversed(IN_ORDER))

    @scenario()
    async def test_pages_of_limited_bytes_cover_the_whole_span(self, harness: Harness) -> None:
        values = [b'"%b"' % (b"x" * (900 if at % 5 == 4 else 8)) for at in range(len(IN_ORDER))]
        puts = (harness.put(key, value=value) for key, value in zip(IN_ORDER, values, strict=True))
        await asyncio.gather(*puts)
        for limit in (1, 7, len(IN_ORDER)):
            for reverse in (False, True):
                walked = await _walked(harness, limit, reverse=reverse, bytes_max=1_000)
                assert walked == list(reversed(IN_ORDER) if reverse else IN_ORDER)
        page = await harness.engine.scan(SPACE, ALL, limit=100, keys_only=True, bytes_max=1)
        assert [row.key for row in page.rows] == list(IN_ORDER[: len(page.rows)])

    @scenario()
    async def test_rows_of_a_page_are_complete(self, harness: Harness) -> None:
        expires = harness.later(1_000)
        first = await harness.put("a", value=b"[1]")
        second = await harness.put("b", value=b"[2]", expires=expires)
        page = await harness.engine.scan(SPACE, ALL, limit=10)
        assert page.rows == [Row("a", b"[1]", first), Row("b", b"[2]", second, expires)]
        assert all(type(row.value) is bytes for row in page.rows)

    @scenario()
    async def test_keys_only_omits_values_and_nothing_else(self, harness: Harness) -> None:
        expires = harness.later(1_000)
        first = await harness.put("a", "b", value=b"[1]")
        second = await harness.put("c", value=b"[2]", expires=expires)
        page = await harness.engine.scan(SPACE, ALL, limit=2, keys_only=True)
        assert page.rows == [Row("a", b"", first), Row("b", b"", first)]
        assert page.more
        page = await harness.engine.scan(SPACE, ALL, limit=1, keys_only=True, reverse=True)
        assert page.rows == [Row("c", b"", second, expires)]

    @scenario()
    async def test_the_revision_of_a_page_is_between_its_last_commit_and_the_next(
        self, harness: Harness
    ) -> None:
        before = await harness.put("a")
        page = await harness.engine.scan(SPACE, ALL, limit=10)
        empty = await harness.engine.scan(SPACE, Span("x"), limit=10)
        after = await harness.put("a")
        assert before <= page.revision < after
        assert before <= empty.revision < after

    @scenario()
    async def test_a_page_never_shows_part_of_a_commit(self, harness: Harness) -> None:
        """A writer keeps 50 rows equal; a page with two values is not one snapshot."""
        keys = [f"k{number:02d}" for number in range(50)]

        async def write() -> None:
            for number in range(25):
                await harness.put(*keys, value=b"%d" % number)

        writing = asyncio.ensure_future(write())
        while not writing.done():
            page = await harness.engine.scan(SPACE, ALL, limit=100)
            assert len({row.revision for row in page.rows}) <= 1
            assert len(page.rows) in (0, 50)
            assert all(row.revision <= page.revision for row in page.rows)
            await asyncio.sleep(0)
        await writing


async def _walked(
    harness: Harness, limit: int, *, reverse: bool, bytes_max: int | None = None
) -> list[str]:
    found: list[str] = []
    span, more = ALL, True
    while more:
        page = await harness.engine.scan(
            SPACE, span, limit=limit, reverse=reverse, bytes_max=bytes_max
        )
        assert 1 <= len(page.rows) <= limit
        found += [row.key for row in page.rows]
        span = span.before(found[-1]) if reverse else span.after(found[-1])
        more = page.more
    return found
