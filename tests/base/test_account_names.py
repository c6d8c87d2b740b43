"""Names of accounts: two that look the same are the same text, for every character of Unicode."""

import sys
from collections.abc import Iterator
from itertools import chain
from typing import Final
from unicodedata import category

import pytest

from keyhouse import normal
from keyhouse.normalization import account_name
from tests.sizes import size

DEFAULT_IGNORABLE: Final = (
    *(range(0xAD, 0xAE), range(0x34F, 0x350), range(0x61C, 0x61D), range(0x115F, 0x1161)),
    *(range(0x17B4, 0x17B6), range(0x180B, 0x1810), range(0x200B, 0x2010), range(0x202A, 0x202F)),
    *(range(0x2060, 0x2070), range(0x3164, 0x3165), range(0xFE00, 0xFE10), range(0xFEFF, 0xFF00)),
    *(range(0xFFA0, 0xFFA1), range(0xFFF0, 0xFFF9), range(0x1BCA0, 0x1BCA4)),
    *(range(0x1D173, 0x1D17B), range(0xE0000, 0xE1000)),
)
"""Default_Ignorable_Code_Point of Unicode: shown as nothing by programs that do not know them."""

INVISIBLE: Final = frozenset(chain(*DEFAULT_IGNORABLE, (0x2800, 0xFFF9, 0xFFFA, 0xFFFB, 0x1D159)))
CHARS_MAX: Final = 64


UNASSIGNED_STEP: Final = size(64, 1, 1)
"""Seven eighths of all numbers are of no character, or of a private one: every so many of them."""


def characters() -> Iterator[str]:
    for number in range(sys.maxunicode + 1):
        is_assigned = category(chr(number)) not in ("Cn", "Co")
        if is_assigned or number in INVISIBLE or number % UNASSIGNED_STEP == 0:
            yield chr(number)


@pytest.mark.soak
def test_no_character_makes_a_second_account_that_looks_like_the_first() -> None:
    """`an\\u200bn` was another account than `ann`, and looked the same."""
    for character in characters():
        number = ord(character)
        try:
            name = account_name(f"an{character}n", CHARS_MAX)
        except ValueError:
            continue
        assert number not in INVISIBLE, hex(number)
        assert category(character) not in ("Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"), hex(number)
        if character.isspace():
            assert name == "an n"
        else:
            assert normal(name) != "ann", hex(number)
        assert account_name(name, CHARS_MAX) == name


def test_names_of_people_are_names() -> None:
    for name in (
        "ann",
        "Zoë",
        "Ольга",
        "王小明",
        "علي",
        "नरेश",
        "김철수",
        "O'Brien-Smith",
        "R2 D2",
        "☕",
    ):
        assert account_name(name, CHARS_MAX) == name
    assert account_name("  Ａnn\u00a0\u3000 Lee ", CHARS_MAX) == "Ann Lee"
    for name in ("", " ", "\u0301", "\u0301a", "a" * 65, "\ufdfa" * 30):
        with pytest.raises(ValueError, match=r"name|normal form"):
            account_name(name, CHARS_MAX)
