"""Conditional requests (RFC 9110, section 13): entity tags, If-Match and If-None-Match.

The entity tag of a record is its revision in quotes, so it needs no read of the record's bytes.
"""

import re

import msgspec

from keyhouse.errors import RevisionError, UsageError

_TAG = re.compile(r'(W/)?("[\x21\x23-\x7e\x80-\xff]*")')
_TAGS = re.compile(
    r'[ \t]*+(?:W/)?"[\x21\x23-\x7e\x80-\xff]*+"'
    r'(?:[ \t]*+,[ \t]*+(?:(?:W/)?"[\x21\x23-\x7e\x80-\xff]*+")?)*+[ \t]*+'
)
"""Possessive, so that nothing is backtracked: blanks could belong to the comma before or after
them, and a header of a hundred bytes could block the process."""


def etag(revision: int) -> str:
    """Return the entity tag of a revision: `"17"`, quotes included."""
    return f'"{revision}"'


class Conditions(msgspec.Struct, frozen=True):
    """The preconditions of a request. A handler takes them as its argument `conditions`.

    None: the header was not sent. `("*",)`: any. Tags have their quotes; If-Match has strong tags
    only, because a weak one never matches there.
    """

    if_match: tuple[str, ...] | None = None
    if_none_match: tuple[str, ...] | None = None

    def check(self, revision: int | None) -> None:
        """Raise RevisionError (412) unless a record at `revision` (None: none) may be written."""
        tag = None if revision is None else etag(revision)
        if self.if_match is not None and not _matches(tag, self.if_match):
            raise RevisionError("The record does not match If-Match: read it again.", now=tag)
        if self.if_none_match is not None and _matches(tag, self.if_none_match):
            raise RevisionError("The record matches If-None-Match.", now=tag)

    def unchanged(self, tag: str) -> bool:
        """Return whether the client has this version already, so that the response is 304."""
        return self.if_none_match is not None and _matches(
            tag.removeprefix("W/"), self.if_none_match
        )


NO_CONDITIONS = Conditions()


def conditions(if_match: str | None, if_none_match: str | None) -> Conditions:
    """Parse the two headers. Raises UsageError if one is malformed."""
    if if_match is None and if_none_match is None:
        return NO_CONDITIONS
    return Conditions(
        None if if_match is None else _tags("If-Match", if_match, weak=False),
        None if if_none_match is None else _tags("If-None-Match", if_none_match, weak=True),
    )


def _matches(tag: str | None, tags: tuple[str, ...]) -> bool:
    return tag is not None and (tags == ("*",) or tag in tags)


def _tags(header: str, text: str, *, weak: bool) -> tuple[str, ...]:
    if text.strip() == "*":
        return ("*",)
    if not _TAGS.fullmatch(text):
        raise UsageError(
            "A precondition must be * or a list of entity tags in quotes.",
            header=header,
            value=text,
        )
    return tuple(match[2] for match in _TAG.finditer(text) if weak or match[1] is None)
