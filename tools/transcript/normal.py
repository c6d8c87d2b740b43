"""Replies without what differs from run to run: each id, token and time gets a name instead."""

import json
import re
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Any, Final

__all__ = ["Names"]

_DROPPED: Final = frozenset(("date", "content-length", "x-request-id", "connection", "server"))
_TOKEN: Final = r"(?<![\w/-])(?=[\w-]*[A-Z])(?=[\w-]*[a-z])(?=[\w-]*\d)[\w-]{20,}"
_PATTERNS: Final = (
    ("TIME", r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?(?:Z|[+-]\d\d:\d\d)"),
    ("TIME", r"\w{3}, \d\d \w{3} 20\d\d \d\d:\d\d:\d\d GMT"),
    ("TIME", r"\d{4}-\d\d-\d\d[ T]\d\d:\d\d(?::\d\d)?(?!\d)"),
    ("TIME", r"(?<!\d)\d{1,2} \w{3} 20\d\d(?:,? \d\d:\d\d)?"),
    (
        "ULID",
        r"(?<![0-9A-Za-z])(?:01[0-9A-HJKMNP-TV-Z]{24}|01[0-9a-hjkmnp-tv-z]{24})(?![0-9A-Za-z])",
    ),
    ("UUID", r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"),
    ("HEX", r"(?<![0-9A-Za-z])(?=[0-9a-f]*\d)(?=[0-9a-f]*[a-f])[0-9a-f]{8,}(?![0-9A-Za-z])"),
    ("HEX", r"(?<=Z-)[0-9a-f]{8}(?![0-9A-Za-z])"),
    ("SECONDS", r"(?<=retry-after: )\d+"),
    ("DAY", r"(?<!\d)20\d\d-\d\d-\d\d(?!\d)"),
    ("PORT", r"(?<=keyhouse_studio_)\d+"),
    ("EPOCH", r"(?<!\d)1[789]\d{8}(?:\d{3}|\d{6}|\d{9})?(?:\.\d+)?(?!\d)"),
    ("TOKEN", _TOKEN),
)
_REVISION: Final = re.compile(
    r"""((?:"(?:revision|based_on)": ?|etag: (?:W/)?"|^id: |^: caught-up |"""
    r"""name="revision" value="))(\d+)("?)""",
    re.M,
)
_NEAR: Final = timedelta(hours=30)


class Names:
    """Names values by the order in which they appear."""

    def __init__(self, literal: dict[str, str]) -> None:
        self._literal = literal
        self._names: dict[tuple[str, str], str] = {}
        self._known = set[str]()
        self._named = set[str]()
        self._counts: dict[tuple[str, str], int] = {}
        self._newest: dict[str, int] = {}
        self._request = ""

    def sent(self, request: str, text: str) -> None:
        """Leave the values of a request as they are in replies, unless they have a name. New ones
        are named by the request, so that one that is missing renames no others."""
        self._request = self.text(request)
        for _, pattern in _PATTERNS:
            self._known |= {
                found for found in re.findall(pattern, text) if found not in self._named
            }

    def text(self, text: str) -> str:
        for value, name in self._literal.items():
            text = text.replace(value, name)
        for kind, pattern in _PATTERNS:
            text = re.sub(pattern, self._namer(kind), text)
        return _REVISION.sub(self._revision, text)

    def _revision(self, match: re.Match[str]) -> str:
        """Return a revision by its relation to the newest one of the system."""
        quote = "" if match[1].endswith(('"', "id: ", "caught-up ")) else '"'
        return f"{match[1]}{quote}{self._relation(int(match[2]))}{match[3] or quote}"

    def _relation(self, value: int) -> str:
        system = re.split(r"[/.?]", self._request + "//")[1]
        newest = self._newest.get(system, 0)
        self._newest[system] = max(newest, value)
        return "<newer>" if value > newest else "<newest>" if value == newest else "<older>"

    def _namer(self, kind: str) -> Callable[[re.Match[str]], str]:
        def name(match: re.Match[str]) -> str:
            value = match[0]
            if kind in ("SECONDS", "PORT"):
                return f"<{kind}>"
            if value in self._known:
                return value
            if kind in ("TIME", "EPOCH", "DAY"):
                shape = re.sub(r"\d", "0", value) if kind == "TIME" else str(len(value))
                return f"<{kind} {shape}>" if _is_near(value) else value
            if (kind, value) not in self._names:
                counted = kind, self._request
                self._counts[counted] = self._counts.get(counted, 0) + 1
                name = f"<{kind} {self._counts[counted]} of {self._request}>"
                self._names[kind, value] = name.replace('"', "'")
                self._named.add(value)
            return self._names[kind, value]

        return name

    def reply(self, status: int, headers: list[tuple[str, str]], body: bytes) -> dict[str, Any]:
        shown = [
            self.text(f"{name.lower()}: {value}")
            for name, value in headers
            if name.lower() not in _DROPPED
        ]
        return {"status": status, "headers": sorted(shown), "body": self.body(body)}

    def body(self, body: bytes) -> Any:
        try:
            text = body.decode()
        except UnicodeDecodeError:
            return f"{len(body)} bytes: {body[:16].hex()}"
        with suppress(ValueError):
            return self._value(json.loads(text))
        text = self.text(text)
        if text.lstrip().startswith("<"):
            parts = re.split(r"\s*(?=<)|(?<=>)\s*", re.sub(r"\s+", " ", text))
            return [part for part in parts if part]
        return text.splitlines()

    def _value(self, value: Any, member: str = "") -> Any:
        if isinstance(value, dict):
            return {self.text(name): self._value(part, name) for name, part in value.items()}
        if isinstance(value, list):
            return [self._value(part) for part in value]
        if isinstance(value, str):
            return self.text(value)
        if member in ("retry_after_seconds", "current_time"):
            return "<SECONDS>"
        if isinstance(value, int) and member in ("revision", "based_on"):
            return self._relation(value)
        if isinstance(value, int | float) and value > 1e9 and _is_near(str(value)):
            return f"<EPOCH {len(str(value))}>"
        return value


def _is_near(value: str) -> bool:
    """Return whether a time is one of the recording; others are data."""
    now = datetime.now(UTC)
    if value.replace(".", "").isdigit():
        seconds = float(value)
        while seconds > 1e10:
            seconds /= 1_000
        return abs(seconds - now.timestamp()) < 400 * 86_400
    with suppress(ValueError):
        found = datetime.fromisoformat(value.replace("Z", "+00:00"))
        return abs(found.replace(tzinfo=found.tzinfo or UTC) - now) < _NEAR * 20
    return str(now.year) in value
