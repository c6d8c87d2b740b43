"""Keys behind Tab in bash, which takes `:` and `=` for the end of a word: `idx:clip:ta` comes as five words.

What it took apart is put together before the command line is read, and what it has already is taken off each offer: bash
replaces only the last of these words. Where it is told to leave `:` alone, by COMP_WORDBREAKS, nothing is done.
"""

import io
import os
import re
import shlex
import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout

ASKED = "_KEYHOUSE_COMPLETE"


@contextmanager
def colons_kept() -> Iterator[None]:
    """Around the whole program. It does nothing unless bash asks what could be typed."""
    if os.environ.get(ASKED) != "complete_bash" or "COMP_WORDS" not in os.environ:
        yield
        return
    words, current, known = rejoined(
        _split(os.environ["COMP_WORDS"]), int(os.environ.get("COMP_CWORD", "0"))
    )
    os.environ["COMP_WORDS"], os.environ["COMP_CWORD"] = shlex.join(words), str(current)
    offers = io.StringIO()
    try:
        with redirect_stdout(offers):
            yield
    finally:
        for offer in offers.getvalue().splitlines():
            print(offer.removeprefix(known), file=sys.stdout)


def rejoined(words: list[str], current: int) -> tuple[list[str], int, str]:
    """The words as they were typed, which of them is the one at the cursor, and what of it bash takes for words before."""
    whole: list[str] = []
    at, known, glued = None, "", False
    for index, word in enumerate(words):
        is_break = bool(re.fullmatch(r"[:=]+", word))
        if whole and (is_break or glued):
            whole[-1] += word
        else:
            whole.append(word)
        glued = is_break
        if index == current:
            at, known = len(whole) - 1, whole[-1] if is_break else whole[-1].removesuffix(word)
    return whole, len(whole) if at is None else at, known


def _split(text: str) -> list[str]:
    """A quote that is still open is part of a word."""
    try:
        return shlex.split(text)
    except ValueError:
        return text.split()
