"""Clocks and id sources. They are passed in: no layer below the services reads the system clock.

Time is an integer everywhere: milliseconds since 1970 UTC.
"""

import os
import random
import re
import time
from collections.abc import Callable
from datetime import timedelta
from typing import Protocol, runtime_checkable

from keyhouse.advice.arguments import checked
from keyhouse.errors import LimitError, UsageError


@runtime_checkable
class Clock(Protocol):
    """The time, in milliseconds since 1970 UTC: an argument of `open_engine`."""

    def now(self) -> int:
        """Return milliseconds since 1970 UTC. The time may step back when the clock is set."""
        ...


class SystemClock:
    """The clock of the machine: the default of every engine."""

    __slots__ = ()

    def now(self) -> int:
        return time.time_ns() // 1_000_000


class MonotonicClock:
    """Milliseconds since some moment. It is never set, so it measures intervals."""

    __slots__ = ()

    def now(self) -> int:
        return time.monotonic_ns() // 1_000_000


def monotonic(clock: Clock) -> Clock:
    """Return a clock for intervals beside this one: a monotonic one for the system's clock, else
    the same."""
    return MonotonicClock() if isinstance(clock, SystemClock) else clock


class ManualClock:
    """A clock that moves only by `advance` and `set`, for tests and replays."""

    __slots__ = ("_now",)

    @checked(UsageError)
    def __init__(self, now: int = 1_767_225_600_000) -> None:
        self._now = now

    def now(self) -> int:
        """Return the time that was set."""
        return self._now

    @checked(UsageError)
    def advance(
        self,
        by: timedelta = timedelta(),
        /,
        *,
        days: float = 0,
        hours: float = 0,
        minutes: float = 0,
        seconds: float = 0,
        milliseconds: float = 0,
    ) -> int:
        """Move the clock forward, and return the new time: `advance(days=1)`, or by a timedelta."""
        seconds += 60 * (minutes + 60 * (hours + 24 * days)) + by.total_seconds()
        self._now += round(1_000 * seconds + milliseconds)
        return self._now

    def set(self, now: int) -> None:
        """Set the time, forward or back."""
        self._now = now


@runtime_checkable
class Entropy(Protocol):
    """A clock that is also the source of random bits, as the one of a simulation: ids follow its
    seed."""

    def random_bits(self, count: int) -> int: ...


@runtime_checkable
class IdSource(Protocol):
    """A source of ids, for the events of logs and for records whose id is left out: an argument of
    `Store`."""

    def new(self, *, after: str | None = None) -> str:
        """Return a new ULID, greater than every earlier one of this source and than `after`."""
        ...


_CROCKFORD = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
_PAIRS = [one + other for one in _CROCKFORD for other in _CROCKFORD]
_DIGITS = str.maketrans(_CROCKFORD, "0123456789abcdefghijklmnopqrstuv")
"""From Crockford's base 32 to that of `int`."""
_is_ulid = re.compile("[0-7][0-9A-HJKMNP-TV-Z]{25}").fullmatch
_RANDOM_BITS = 80
_TIME_MAX = 2**48 - 1
_PAIR_SHIFTS = range(120, -1, -10)
_ULID_MAX = 2**128 - 1


def ulid_text(number: int) -> str:
    """Return a ULID's 128 bits as its 26 characters. Numbers and texts sort alike."""
    return "".join([_PAIRS[number >> shift & 1_023] for shift in _PAIR_SHIFTS])


def ulid_number(text: str) -> int:
    """Return the 128 bits of a canonical ULID; raises ValueError for anything else."""
    if not _is_ulid(text):
        raise ValueError("not a ULID")
    return int(text.translate(_DIGITS), 32)


def ulid_at(now: int) -> str:
    """Return the smallest ULID of a time: every ULID generated earlier is smaller."""
    return ulid_text(min(max(now, 0), _TIME_MAX) << _RANDOM_BITS)


def _random_bits(count: int) -> int:
    """Return random bits for an id, a multiple of 8: as `secrets.randbits`, without its layers."""
    return int.from_bytes(os.urandom(count // 8))


class UlidSource:
    """A source of increasing ULIDs.

    They increase even when the clock steps back: a repeated ULID would overwrite a row.
    """

    __slots__ = ("_clock", "_last", "_random")

    @checked(UsageError)
    def __init__(self, clock: Clock, *, seed: int | None = None) -> None:
        self._clock = clock
        self._last = 0
        self._random: Callable[[int], int]
        if seed is not None:
            self._random = random.Random(seed).getrandbits
        else:
            self._random = clock.random_bits if isinstance(clock, Entropy) else _random_bits

    def new(self, *, after: str | None = None) -> str:
        last = self._last
        number = (self._clock.now() << _RANDOM_BITS) | self._random(_RANDOM_BITS)
        if number <= last:
            number = last + 1
        text = ulid_text(number)
        if after is not None:
            if not _is_ulid(after):
                raise ValueError("not a ULID")
            if text <= after:  # texts sort as their numbers do
                last = ulid_number(after)
                number = last + 1
                text = ulid_text(number)
        if number > _ULID_MAX:
            raise LimitError("No ULID is greater than the last one.", last=ulid_text(last))
        self._last = number
        return text
