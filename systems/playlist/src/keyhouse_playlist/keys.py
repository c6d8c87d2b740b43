"""Fields of keys: the id of a playlist, which is any text but `index`, the key of the list of
playlists; and network addresses, in one spelling for each."""

import re
from ipaddress import IPv6Address, IPv6Network, ip_address
from string import ascii_letters, digits
from typing import Any

from keyhouse.keys import NormalizedText, TextSegment

__all__ = ["IpAddress", "PlaylistId", "all_but"]

_INDEX = "index"
_ALPHABET = "-_=." + ascii_letters + digits


class PlaylistId(TextSegment):
    """Text in the alphabet of NATS. Its pattern excludes `index`, so that the proof of unambiguous
    keys sees it."""

    description = "text other than 'index'"

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.pattern = all_but(_INDEX, _ALPHABET)

    def format(self, value: object) -> str:
        if value == _INDEX:
            raise ValueError("must not be 'index', the key of the list of playlists")
        return super().format(value)


def all_but(word: str, alphabet: str) -> str:
    """Return a regular expression for all non-empty text of the alphabet except the word.

    It uses no lookahead, which the proof of unambiguous keys does not support: text differs from
    the word at some letter, or stops within it, or continues after it.
    """
    every = f"[{re.escape(alphabet)}]"
    pattern = f"{every}+"
    for index in range(len(word) - 1, -1, -1):
        letter = word[index]
        differs = f"[{re.escape(alphabet.replace(letter, ''))}]{every}*"
        pattern = f"(?:{differs}|{re.escape(letter)}{pattern})" + ("?" if index else "")
    return pattern


class IpAddress(NormalizedText):
    """An IPv4 or IPv6 address in its canonical form; an IPv4 address mapped to IPv6 is the IPv4
    address. The /64 of an IPv6 address is one too: a client chooses its address within it."""

    description = "an IP address in its canonical form, or the /64 of one"

    def format(self, value: object) -> str:
        text = str(value)
        if text.endswith("/64"):
            return super().format(_canonical_network(text))
        return super().format(_canonical_address(text))


def _canonical_address(text: str) -> str:
    """Return the one spelling of an address; raises ValueError if the text is not one."""
    try:
        address = ip_address(text.strip())
    except ValueError:
        raise ValueError("must be an IP address") from None
    if isinstance(address, IPv6Address) and address.ipv4_mapped is not None:
        address = address.ipv4_mapped
    return str(address)


def _canonical_network(text: str) -> str:
    try:
        return str(IPv6Network(text, strict=False))
    except ValueError:
        raise ValueError("must be the /64 of an IPv6 address") from None
