"""Conditional requests (RFC 9110, section 13): tags that stand for revisions, If-Match and If-None-Match.

A record's tag is its revision in quotes, so it is right without reading the record's bytes.
"""

import re

import msgspec

from keyhouse.errors import RevisionError, UsageError

_TAG = re.compile(r'(W/)?("[\x21\x23-\x7e\x80-\xff]*")')
_TAGS = re.compile(
    r'[ \t]*+(?:W/)?"[\x21\x23-\x7e\x80-\xff]*+"'
    r'(?:[ \t]*+,[ \t]*+(?:(?:W/)?"[\x21\x23-\x7e\x80-\xff]*+")?)*+[ \t]*+'
)
"""One way to read each character, so nothing is tried again: blanks could else belong to the comma before or behind them,
and a header of a hundred bytes hold up the process for longer than anybody waits."""


def etag(revision: int) -> str:
    """The tag of a revision: `"17"`, quotes included."""
    return f'"{revision}"'


class Conditions(msgspec.Struct, frozen=True):
    """What a request says of the record it means. A handler takes it as its argument `conditions`.

    None: the header was not sent. `("*",)`: any. Tags are with their quotes; those of If-Match are strong ones only,
    because a weak one never matches there.
    """

    if_match: tuple[str, ...] | None = None
    if_none_match: tuple[str, ...] | None = None

    def check(self, revision: int | None) -> None:
        """Raise RevisionError (412) unless a write may go on, over a record at `revision`; None: there is no record."""
        tag = None if revision is None else etag(revision)
        if self.if_match is not None and not _found(tag, self.if_match):
            raise RevisionError(
                "The record is not the one that If-Match names: read it again.", now=tag
            )
        if self.if_none_match is not None and _found(tag, self.if_none_match):
            raise RevisionError("There is a record that If-None-Match rules out.", now=tag)

    def unchanged(self, tag: str) -> bool:
        """Whether a reader has this already, so that 304 is the answer."""
        return self.if_none_match is not None and _found(tag.removeprefix("W/"), self.if_none_match)


NONE = Conditions()


def conditions(if_match: str | None, if_none_match: str | None) -> Conditions:
    """What the two headers say; UsageError when one is not written as the standard has it."""
    if if_match is None and if_none_match is None:
        return NONE
    return Conditions(
        None if if_match is None else _tags("If-Match", if_match, weak=False),
        None if if_none_match is None else _tags("If-None-Match", if_none_match, weak=True),
    )


def _found(tag: str | None, tags: tuple[str, ...]) -> bool:
    return tag is not None and (tags == ("*",) or tag in tags)


def _tags(header: str, text: str, *, weak: bool) -> tuple[str, ...]:
    if text.strip() == "*":
        return ("*",)
    if not _TAGS.fullmatch(text):
        raise UsageError(
            "A condition is * or a list of tags, each in quotes.", header=header, value=text
        )
    return tuple(found[2] for found in _TAG.finditer(text) if weak or found[1] is None)
