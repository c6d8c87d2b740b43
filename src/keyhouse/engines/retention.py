"""The length of an engine's log of changes: `changes_kept=` and `changes_seconds=` in its URL.

Both are minima: a change is pruned when it is beyond the newest `changes` and older than `seconds`.
The logs hold no times. So a sweep notes the newest position, and a change is older than a time if a
sweep of this process noted its position, or a newer one, that long ago. After a start, changes
therefore stay for `seconds` more.
"""

from collections import defaultdict, deque
from typing import Final, NamedTuple

from keyhouse.clock import Clock
from keyhouse.engines.sql.url import CHANGES_PARAMETERS, split_parameter
from keyhouse.engines.url import public_url
from keyhouse.errors import UsageError
from keyhouse.limits import CHANGES_KEPT

__all__ = ["ChangesKept", "Kept", "Retention", "kept_of", "split_changes_kept"]

NOTES: Final = 16
"""Notes in the time of `seconds`: changes stay longer by up to one such part."""


DIGITS_MAX: Final = 12
"""Digits of a number in the URL."""


class ChangesKept(NamedTuple):
    """The newest `changes`, and all of the last `seconds`."""

    changes: int = CHANGES_KEPT
    seconds: int = 0


Kept = int | ChangesKept
"""A number of changes, or also a time."""


def kept_of(kept: Kept) -> ChangesKept:
    return kept if isinstance(kept, ChangesKept) else ChangesKept(kept)


class Retention:
    """Tells the sweeps of one engine what they may prune."""

    def __init__(self, kept: Kept, clock: Clock) -> None:
        self.kept = kept_of(kept)
        self._clock = clock
        self._notes: defaultdict[str, deque[tuple[int, int]]] = defaultdict(deque)

    def prunable(self, newest: int, log: str = "") -> int:
        """Note the newest position of a log; return the position up to which it may be pruned."""
        surplus = newest - self.kept.changes
        if not self.kept.seconds:
            return surplus
        notes, now, age = self._notes[log], self._clock.now(), self.kept.seconds * 1_000
        if not notes or now - notes[-1][0] >= age / NOTES:
            notes.append((now, newest))
        while len(notes) > 1 and now - notes[1][0] >= age:
            notes.popleft()
        noted, position = notes[0]
        return min(surplus, position if now - noted >= age else 0)


def split_changes_kept(url: str) -> tuple[str, ChangesKept]:
    """Return the URL of an engine without these two parameters, and their values."""
    kept = ChangesKept()
    for name, field in zip(CHANGES_PARAMETERS, ChangesKept._fields, strict=True):
        url, texts = split_parameter(url, name)
        if not texts:
            continue
        text = texts[0]
        if len(texts) > 1 or not (text.isascii() and text.isdigit() and len(text) <= DIGITS_MAX):
            raise UsageError(
                f"Invalid {name} in the URL; write {name}=NUMBER, once.",
                url=public_url(url),
                given=texts,
            )
        kept = kept._replace(**{field: int(text)})
    return url, kept
