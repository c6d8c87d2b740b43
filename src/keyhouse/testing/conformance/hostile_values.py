"""Keys and values that break stores which concatenate strings, fold text or parse JSON.

An engine stores each of them byte for byte.
"""

import asyncio

import pytest

from keyhouse.engine import Span
from keyhouse.errors import DocumentError
from keyhouse.limits import KEY_BYTES_MAX
from keyhouse.testing.conformance.harness import SPACE, Harness, scenario

KEYS = (
    *(chr(code) for code in range(1, 128)),
    *(f"a{chr(code)}b" for code in range(1, 128)),
    *(
        "..",
        "a..b",
        ".a",
        "a.",
        "../",
        "../../etc/passwd",
        "%2e%2e",
        "%00",
        "$",
        "$KV",
        "a>",
        ">",
        "*",
        "a.*.b",
    ),
    *(
        "' OR '1'='1",
        "'; DROP TABLE rows; --",
        '"',
        "''",
        "\\'",
        "${x}",
        "{{x}}",
        "{x}",
        "%s",
        "%(x)s",
        "?",
        ":x",
        "@x",
    ),
    *(
        "fe80::1%eth0",
        "[::1]:80",
        "http://a/b?c=d#e",
        "a\r\nb",
        "\t",
        " ",
        "  ",
        " a",
        "a ",
        "null",
        "true",
        "0",
        "-0",
    ),
    *("é", "e\u0301", "ﬁ", "fi", "ß", "ss", "İ", "i", "ı", "Å", "Å", "A\u030a", "K", "K"),
    *(
        "\u200b",
        "a\u200bb",
        "\u202e",
        "\ufeff",
        "a\ufeff",
        "\u2028",
        "\ufffd",
        "\ufffe",
        "\uffff",
        "\ud7ff",
        "\ue000",
    ),
    *(
        "\U0001f468\u200d\U0001f469",
        "\U0001f600",
        "\U0010ffff",
        "__proto__",
        "constructor",
        "x" * KEY_BYTES_MAX,
    ),
)

VALUES = (
    *(
        b"null",
        b"true",
        b'""',
        b"[]",
        b"{}",
        b"0",
        b"-0",
        b"-0.0",
        b"1.0",
        b"1e400",
        b"1E+2",
        b"0.1",
        b"1.10",
    ),
    *(b"9007199254740993", b"18446744073709551616", b"-9223372036854775809", b"1" + b"0" * 3_999),
    *(
        b'"\\u0000"',
        b'"\\ud83d\\ude00"',
        b'"\\/"',
        b'"/"',
        '"é"'.encode(),
        '"e\u0301"'.encode(),
        '"\u2028"'.encode(),
    ),
    *(
        '"\ufeff"'.encode(),
        '"\U0010ffff"'.encode(),
        b'"\x7f"',
        b'"%s %(x)s ? :x $1"',
        b'"\'; DROP TABLE rows; --"',
    ),
    *(
        b'{"b":1,"a":2}',
        b'{"a":1,"a":2}',
        b'{"__proto__":{}}',
        b'{ "a" : [ 1 , 2 ] }',
        b" 1 ",
        b"[1,\n2]",
    ),
    b"[" * 128 + b"]" * 128,
    b"{" + b",".join(b'"m%d":%d' % (number, number) for number in range(10_000)) + b"}",
)

NO_TEXT = (b"\xff", b"\x00", b'"\x00"', b'"\xed\xa0\x80"', b'"\xc0\x80"', b"\x80\x81")


class HostileValueTests:
    @scenario()
    async def test_every_key_is_distinct_from_every_other(self, harness: Harness) -> None:
        keys = list(dict.fromkeys(KEYS))
        puts = (harness.put(key, value=b"%d" % number) for number, key in enumerate(keys))
        await asyncio.gather(*puts)
        rows = await harness.engine.read(SPACE, keys)
        assert [(row and row.key, row and row.value) for row in rows] == [
            (key, b"%d" % number) for number, key in enumerate(keys)
        ]
        assert await harness.keys() == sorted(keys, key=str.encode)

    @scenario()
    async def test_every_key_can_be_scanned_watched_checked_and_deleted(
        self, harness: Harness
    ) -> None:
        keys = sorted(set(KEYS))
        start = await harness.put("a first one")
        for share in harness.shares(keys):
            await harness.put(*share)
        for key in keys[::5]:
            expected = [other for other in keys if other.startswith(key)]
            assert [
                found for found in await harness.keys(Span.prefix(key)) if found != "a first one"
            ] == expected
        assert {change.key for change in await harness.changes(since=start)} == set(keys) - {
            "\U0010ffff"
        }
        assert await harness.commit(checks=dict.fromkeys(keys, None), puts={"x": b"1"}) is None
        for share in harness.shares(keys):
            await harness.commit(deletes=tuple(share))
        assert await harness.keys() == ["a first one"]

    @scenario()
    async def test_composed_and_decomposed_text_are_different_keys(self, harness: Harness) -> None:
        await harness.put("caf\u00e9", value=b"1")
        assert await harness.row("cafe\u0301") is None
        await harness.put("cafe\u0301", value=b"2")
        assert await harness.value("caf\u00e9") == b"1"

    @scenario()
    async def test_a_value_is_stored_byte_for_byte(self, harness: Harness) -> None:
        start = await harness.put("start")
        for number, value in enumerate(VALUES):
            await harness.put(f"k{number:02d}", value=value)
        rows = await harness.engine.read(SPACE, [f"k{number:02d}" for number in range(len(VALUES))])
        assert [row and row.value for row in rows] == list(VALUES)
        page = await harness.engine.scan(SPACE, Span.prefix("k"), limit=1_000)
        assert [row.value for row in page.rows] == list(VALUES)
        assert [change.value for change in await harness.changes(since=start)] == list(VALUES)

    @scenario()
    async def test_binary_values_are_stored_byte_for_byte_or_rejected(
        self, harness: Harness
    ) -> None:
        for value in NO_TEXT:
            if harness.engine.capabilities.binary:
                await harness.put("a", "b", value=value)
                assert await harness.value("a") == value
                assert [
                    row.value
                    for row in (await harness.engine.scan(SPACE, Span.prefix("a"), limit=2)).rows
                ] == [value]
            else:
                with pytest.raises(DocumentError):
                    await harness.commit(puts={"a": value, "b": b"1"}, adds={"n": 1})
                assert await harness.keys() == []
        await harness.put("n", value=b"7")
        assert await harness.value("n") == b"7"

    @scenario(durable=True)
    async def test_keys_and_values_survive_reopening(self, harness: Harness) -> None:
        rows = dict(zip(dict.fromkeys(KEYS), VALUES * len(KEYS), strict=False))
        await asyncio.gather(*(harness.commit(puts={key: rows[key]}) for key in rows))
        await harness.reopen()
        found = await harness.engine.read(SPACE, [*rows])
        assert {row.key: row.value for row in found if row is not None} == rows
